import numpy as np
import pytest

from rcil.core.errors import ConfigError
from rcil.model.class_match import match_classes
from rcil.model.metadata import class_table
from rcil_serve.watch.trial import Trial, TrialRule

CURRENT = class_table([["background", "a", "b"]])
NEW = class_table([["background", "a", "b"], ["c"]])


def strip(*counts):
    mask = np.zeros((1, 100), np.uint8)
    start = 0
    for row, count in enumerate(counts, start=1):
        mask[0, start : start + count] = row
        start += count
    return mask


def trial(**rule):
    return Trial(match_classes(CURRENT, NEW), TrialRule(**({"frames": 3, "agreement": 0.9, "min_share": 0.01} | rule)))


def test_a_verdict_comes_after_the_stated_frames_and_not_before():
    under = trial()
    assert under.add(strip(20, 10), strip(20, 10)) is None
    assert under.add(strip(20, 10), strip(19, 10)) is None
    assert under.agreement()["a"] == pytest.approx(39 / 40)
    verdict = under.add(strip(20), strip(20))
    assert verdict.passed and verdict.frames == 3
    assert verdict.agreement == {
        "background": pytest.approx((70 + 70 + 80) / (70 + 71 + 80)),
        "a": pytest.approx(59 / 60),
        "b": pytest.approx(19 / 21),
    }


def test_one_class_that_disagrees_is_enough_to_refuse_and_the_next_round_begins_anew():
    under = trial()
    for _ in range(2):
        under.add(strip(50, 10), strip(50, 8))
    verdict = under.add(strip(50, 10), strip(50, 8))
    assert not verdict.passed
    assert verdict.reasons == ("b has an IoU of 0.800, below 0.900",)
    assert under.frames == 0 and under.agreement() == {}
    for _ in range(2):
        assert under.add(strip(50, 10), strip(50, 10)) is None
    assert under.add(strip(50, 10), strip(50, 10)).passed, "the first round is forgotten"


def test_the_agreement_itself_is_enough():
    assert trial(frames=1, agreement=0.8).add(strip(10, 10), strip(10, 8)).passed
    assert not trial(frames=1, agreement=0.801).add(strip(10, 10), strip(10, 8)).passed


def test_new_classes_must_be_seen_if_asked_for():
    seen, unseen = strip(20, 0, 5), strip(20)
    assert trial(frames=1).add(strip(20), unseen).passed
    verdict = trial(frames=1, needs_new=True).add(strip(20), unseen)
    assert verdict.reasons == ("c was not seen",)
    under = trial(frames=2, needs_new=True)
    under.add(strip(20), seen)
    assert under.add(strip(20), unseen).passed


def test_an_empty_scene_proves_nothing():
    assert trial(frames=1).add(strip(), strip()).reasons == ("no old class was seen",)
    assert trial(frames=1, min_share=0.05).add(strip(4), strip(4)).reasons == ("no old class was seen",)


def test_specks_do_not_count_but_one_clear_sight_of_a_rare_class_does():
    under = trial(min_share=0.05)
    under.add(strip(50, 1), strip(50, 0))
    under.add(strip(50, 1), strip(50, 0))
    assert under.add(strip(50, 1), strip(50, 0)).passed
    under.add(strip(50, 6), strip(50, 0))
    under.add(strip(50), strip(50))
    assert under.add(strip(50), strip(50)).reasons == ("b has an IoU of 0.000, below 0.900",)


@pytest.mark.parametrize("wrong", [{"frames": 0}, {"agreement": 1.1}])
def test_rules_that_make_no_sense(wrong):
    with pytest.raises(ConfigError):
        TrialRule(**wrong)
