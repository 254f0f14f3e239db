import pytest

from rcil.core.errors import ConfigError
from rcil_serve.watch.alarms import Alarms, Limits
from rcil_serve.watch.meters import Measure, Reading

KEY = (Measure.AGREEMENT, "a")


def judged(alarms, *values, measure=Measure.AGREEMENT, firm=True):
    """Places and directions of the changes that these values of class a cause."""
    found = []
    for place, value in enumerate(values):
        found += [(place, change.raised) for change in alarms.judge([Reading(measure, "a", value, firm)])]
    return found


def test_raised_and_cleared_once_each():
    alarms = Alarms(Limits(min_agreement=0.9, patience=3))
    values = [1, 0.89, 0.89, 0.95, 0.89, 0.8, 0.7, 0.1, 0.1, 0.95, 0.95, 0.5, 0.95, 0.95, 0.95, 1, 1]
    assert judged(alarms, *values) == [(6, True), (14, False)]
    assert alarms.active == frozenset() and alarms.raised == {KEY: 1}


def test_values_on_the_edge():
    alarms = Alarms(Limits(min_agreement=0.9, patience=1))
    assert judged(alarms, 0.9, 0.899, 0.9, 0.909, 0.911) == [(1, True), (4, False)], "clears above 0.91 only"


@pytest.mark.parametrize(
    ("measure", "good", "bad", "still_bad"),
    [
        (Measure.DRIFT, -0.3, -0.31, 0.28),
        (Measure.DRIFT, 0.3, 0.31, -0.28),
        (Measure.FLICKER, 0.1, 0.11, 0.095),
        (Measure.SILENCE, 5.0, 5.1, 4.6),
    ],
)
def test_limits_that_must_not_be_passed(measure, good, bad, still_bad):
    alarms = Alarms(Limits(max_silence=5.0, patience=1))
    assert judged(alarms, good, bad, still_bad, 0.0, measure=measure) == [(1, True), (3, False)]


def test_what_is_unknown_or_not_firm_changes_nothing():
    alarms = Alarms(Limits(patience=2))
    assert judged(alarms, 0.1, None, 0.1) == [(2, True)]
    assert judged(alarms, None, None, None) == []
    assert judged(alarms, 1.0, 1.0, 1.0, firm=False) == []
    assert alarms.active == {KEY}


def test_classes_and_measures_have_alarms_of_their_own():
    alarms = Alarms(Limits(patience=1))
    changes = alarms.judge(
        [
            Reading(Measure.AGREEMENT, "a", 0.5),
            Reading(Measure.AGREEMENT, "b", 0.95),
            Reading(Measure.FLICKER, "a", 0.5),
        ]
    )
    assert [(change.measure, change.name) for change in changes] == [KEY, (Measure.FLICKER, "a")]
    assert changes[0].text == "ALARM   agreement of a is 0.500, should be at least 0.900"
    assert changes[1].text == "ALARM   flicker of a is 0.500, should be at most 0.100"


def test_dropping_ends_alarms_about_the_model_but_not_about_the_source():
    alarms = Alarms(Limits(patience=2, max_silence=1.0))
    for _ in range(2):
        alarms.judge([Reading(*KEY, 0.1), Reading(Measure.SILENCE, "", 9.0)])
    alarms.judge([Reading(Measure.DRIFT, "a", 2.0)])
    (change,) = alarms.drop()
    assert (change.measure, change.name, change.value, change.raised) == (*KEY, None, False)
    assert alarms.active == {(Measure.SILENCE, "")}
    assert alarms.judge([Reading(Measure.DRIFT, "a", 2.0)]) == [], "the streak of the former model does not count"
    assert alarms.judge([Reading(Measure.SILENCE, "", 0.0)]) == []
    (change,) = alarms.judge([Reading(Measure.SILENCE, "", 0.0)])
    assert change.text == "cleared silence is 0.000 s, should be at most 1.000 s"


@pytest.mark.parametrize("wrong", [{"min_agreement": 1.5}, {"max_drift": 0.0}, {"max_silence": -1.0}, {"patience": 0}])
def test_limits_that_make_no_sense(wrong):
    with pytest.raises(ConfigError):
        Limits(**wrong)
