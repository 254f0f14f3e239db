from dataclasses import replace

import pytest

from rcil.site.forgetting import Forgetting, NewClass, OldClass
from rcil.site.verdict import Limits, judge

LIMITS = Limits(max_drop=5, min_new=20)


def old(name, drop, interval=None, groups=9):
    if drop is None:
        return OldClass(name, "no", None, None, None, None, 7)
    return OldClass(name, "labels", 80.0, 80.0 - drop, None, drop, 5000, interval or (drop, drop), groups, 0.5)


def new(iou, interval=None, groups=9, pixels=700, name="cone"):
    return NewClass(name, iou, pixels, interval or (iou, iou), groups)


def measured(*classes, groups=9, background=30.0):
    named = [c for c in classes if isinstance(c, OldClass)]
    learned = [c for c in classes if isinstance(c, NewClass)]
    return Forgetting(40, groups, (old("background", background), *named), tuple(learned))


GOOD, LEARNED = old("ball", 1.0, (0.2, 2.0)), new(50.0, (40.0, 60.0))


@pytest.mark.parametrize(
    ("classes", "outcome", "reason"),
    [
        (
            (GOOD, LEARNED),
            "accepted",
            "no old class lost more than 5 points (largest drop: ball, 1.0) and new classes reach at least 20 % IoU "
            "(cone 50.0 %)",
        ),
        (
            (old("ball", -1.0), old("van", None), old("rail", 0.0, groups=2), LEARNED),
            "accepted",
            "no old class lost more than 5 points (none became worse) and new classes reach at least 20 % IoU "
            "(cone 50.0 %); not measured: van; seen in fewer than 5 scenes: rail",
        ),
        ((old("ball", 9.0, (6.0, 12.0)), LEARNED), "rejected", "ball dropped 9.0 points (6.0 to 12.0), limit 5"),
        (
            (old("ball", 9.0, (4.0, 12.0)), LEARNED),
            "uncertain",
            "ball dropped 9.0 points (4.0 to 12.0), limit 5: too close to call",
        ),
        (
            (old("ball", 4.0, (3.0, 6.0)), new(50.0, (15.0, 60.0))),
            "uncertain",
            "ball dropped 4.0 points (3.0 to 6.0), limit 5: too close to call; cone reaches 50.0 % IoU (15.0 to 60.0), "
            "required 20: too close to call",
        ),
        ((GOOD, new(3.0, (1.0, 6.0))), "rejected", "cone reaches 3.0 % IoU (1.0 to 6.0), required 20"),
        (
            (GOOD, new(None, pixels=3)),
            "uncertain",
            "the images show only 3 pixels of cone, which is too few to measure it",
        ),
        (
            (GOOD, new(50.0, (40.0, 60.0), groups=4)),
            "uncertain",
            "cone reaches 50.0 % IoU (40.0 to 60.0), required 20, but in only 4 different scenes",
        ),
        ((old("ball", None), LEARNED), "uncertain", "forgetting could not be measured: 40 images show no old class"),
        (
            (old("ball", 0.0, groups=3), LEARNED),
            "uncertain",
            "every old class was seen in fewer than 5 different scenes",
        ),
        ((LEARNED,), "accepted", "there was nothing to forget and new classes reach at least 20 % IoU (cone 50.0 %)"),
    ],
)
def test_the_interval_decides(classes, outcome, reason):
    verdict = judge(measured(*classes), LIMITS)
    assert (verdict.outcome, verdict.reason) == (outcome, reason)
    document = verdict.as_document()
    assert document["rejected"] == (reason if outcome == "rejected" else None)
    assert verdict.marked("uncertain") == (reason if outcome == "uncertain" else None)
    assert [f["name"] for f in document["findings"]] == ["background", *(c.name for c in classes)]


def test_too_few_scenes_prove_nothing_but_can_disprove():
    few = measured(old("ball", 1.0, groups=1), new(50.0, groups=1), groups=1)
    verdict = judge(few, LIMITS)
    assert verdict.outcome == "uncertain"
    assert verdict.reason.endswith("forgetting was measured in only 1 scene")
    lost = measured(replace(old("ball", 60.0, groups=1), interval=None), LEARNED, groups=1)
    assert judge(lost, LIMITS).reason == "ball dropped 60.0 points, limit 5"


def test_background_has_a_limit_only_if_asked():
    models = measured(GOOD, LEARNED, background=30.0)
    assert judge(models, LIMITS).outcome == "accepted"
    verdict = judge(models, replace(LIMITS, max_background_drop=10))
    assert verdict.marked("rejected") == "background dropped 30.0 points (30.0 to 30.0), limit 10"
    assert judge(models, replace(LIMITS, max_background_drop=31)).outcome == "accepted"


def test_strict_cannot_forget():
    models = measured(old("ball", 40.0), LEARNED)
    assert judge(models, LIMITS).outcome == "rejected"
    verdict = judge(models, replace(LIMITS, strict=True))
    assert verdict.outcome == "accepted"
    assert verdict.reason.startswith("the logits of old classes are unchanged and new classes reach at least 20 %")
    assert judge(measured(old("ball", 40.0), new(3.0)), replace(LIMITS, strict=True)).outcome == "rejected"
    assert judge(models, replace(LIMITS, strict=True, max_background_drop=1)).outcome == "rejected"


def test_any_new_class_passes_a_minimum_of_zero():
    assert judge(measured(GOOD, new(0.0)), replace(LIMITS, min_new=0)).outcome == "accepted"


def test_many_reasons_are_counted():
    verdict = judge(measured(*(old(f"c{i}", 50.0) for i in range(5)), LEARNED), LIMITS)
    assert verdict.reason.count("dropped") == 3 and verdict.reason.endswith("; and 2 more")
