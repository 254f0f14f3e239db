import numpy as np
import pytest

from rcil.core.errors import ConfigError
from rcil.model.metadata import class_table
from rcil_serve.runtime.zones import WHOLE, parse_zone
from rcil_serve.watch.alarms import Alarms, Limits
from rcil_serve.watch.meters import Measure, Reading
from rcil_serve.watch.rules import Rule, check_classes, coverage, parse_rule

DOCK = parse_zone("dock=0,0 0.5,0 0.5,1 0,1")
CLASSES = class_table([["background", "forklift", "safety vest"]])


def test_a_sentence_becomes_a_rule_and_back():
    rule = parse_rule("forklift covers more than 5 % of zone dock for 2 s", [DOCK])
    assert rule == Rule("forklift", DOCK, 0.05, above=True, seconds=2)
    assert rule.text == "forklift covers more than 5 % of dock for 2 s"
    assert parse_rule(rule.text, [DOCK]) == rule
    other = parse_rule("safety vest  covers less than 0.5% of the picture", [DOCK])
    assert other == Rule("safety vest", WHOLE, 0.005, above=False)
    assert other.text == "safety vest covers less than 0.5 % of the picture"
    assert parse_rule("forklift covers more than 0 % of picture", []).zone is WHOLE


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("forklift", "not a rule"),
        ("forklift covers 5 % of dock", "not a rule"),
        ("forklift covers more than five % of dock", "not a rule"),
        ("forklift covers more than 5 % of dok", "no zone 'dok'"),
        ("forklift covers more than 100 % of dock", "always or never"),
        ("forklift covers less than 0 % of dock", "always or never"),
    ],
)
def test_sentences_that_are_no_rules(text, message):
    with pytest.raises(ConfigError, match=message) as caught:
        parse_rule(text, [DOCK])
    assert caught.value.hint


def test_a_class_that_the_model_lacks():
    rule = parse_rule("forklft covers more than 5 % of dock", [DOCK])
    with pytest.raises(ConfigError, match="no class 'forklft'") as caught:
        check_classes([rule], CLASSES)
    assert "forklift" in caught.value.hint


def test_the_value_is_the_share_of_the_zone():
    mask = np.zeros((40, 80), np.uint8)
    mask[:20, :40] = 1
    rules = [parse_rule(f"forklift covers more than 5 % of {zone}", [DOCK]) for zone in ("dock", "the picture")]
    values = [reading.value for reading in coverage(rules, CLASSES, mask)]
    assert values == [pytest.approx(0.5, abs=0.02), 0.25]
    swapped = [CLASSES[0], CLASSES[2], CLASSES[1]]
    assert [reading.value for reading in coverage(rules, swapped, mask)] == [0, 0], "classes go by name"


def judged(rule, values, every=0.5):
    """Times at which the alarm changes, for one value every half second."""
    alarms, found = Alarms(Limits(), [rule]), []
    for index, value in enumerate(values):
        time = index * every
        found += [(time, change.raised) for change in alarms.judge([Reading(Measure.COVERAGE, rule.text, value)], time)]
    return found


def test_an_alarm_needs_its_time_and_so_does_its_end():
    rule = parse_rule("forklift covers more than 5 % of dock for 2 s", [DOCK])
    assert judged(rule, [0.06] * 4 + [0.0] + [0.06] * 4) == [], "interrupted"
    assert judged(rule, [0.0, *[0.06] * 5, *[0.0] * 5]) == [(2.5, True), (5.0, False)]
    assert judged(rule, [0.06] * 5 + [0.048] * 9) == [(2.0, True)], "cleared below 4.5 % only"


def test_without_a_time_one_frame_is_enough():
    rule = parse_rule("safety vest covers less than 10 % of dock", [DOCK])
    assert judged(rule, [0.2, 0.1, 0.09, 0.12, 0.2]) == [(1.0, True), (2.0, False)]


def test_what_an_alarm_says():
    rule = parse_rule("forklift covers more than 5 % of dock", [DOCK])
    alarms = Alarms(Limits(), [rule])
    (change,) = alarms.judge([Reading(Measure.COVERAGE, rule.text, 0.073)])
    assert change.text == "ALARM   forklift covers more than 5 % of dock: 7.3 %"
    assert alarms.drop() == [], "it is about the scene, not about the model"
    assert alarms.active == {(Measure.COVERAGE, rule.text)}
