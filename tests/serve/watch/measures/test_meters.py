import numpy as np
import pytest

from rcil.model.class_match import match_classes
from rcil.model.metadata import class_table
from rcil_serve.watch.measures.baseline import Reference
from rcil_serve.watch.measures.meters import FLICKER_SIGHTS, AgreementMeter, DriftMeter, FlickerMeter

OLD = class_table([["background", "a", "b"]])
NEW = class_table([["background", "a", "b"], ["c"]])


def strip(*counts):
    """A mask [1, 100] with so many pixels of rows 1, 2, ... from the left, the rest background."""
    mask = np.zeros((1, 100), np.uint8)
    start = 0
    for row, count in enumerate(counts, start=1):
        mask[0, start : start + count] = row
        start += count
    return mask


def by_name(meter):
    return {reading.name: (reading.value, reading.firm) for reading in meter.readings()}


def test_agreement_adds_pixels_up_over_the_window():
    meter = AgreementMeter(match_classes(OLD, NEW), 10.0, min_share=0.01)
    assert by_name(meter) == dict.fromkeys(("background", "a", "b"), (None, False))
    meter.add(0.0, strip(40), strip(40))
    meter.add(1.0, strip(20), strip(10))
    found = by_name(meter)
    assert found["a"] == (pytest.approx(50 / 60), True), "not the mean of 1 and 0.5"
    assert found["b"] == (None, False)
    assert found["background"] == (pytest.approx((60 + 80) / (60 + 90)), True)
    meter.add(10.5, strip(20), strip(10))
    assert by_name(meter)["a"][0] == pytest.approx(20 / 40), "the first comparison is forgotten"


def test_what_a_new_class_takes_counts_against_old_ones_but_not_against_the_background():
    meter = AgreementMeter(match_classes(OLD, NEW), 10.0, min_share=0.01)
    meter.add(0.0, strip(40), strip(30, 0, 30))
    assert by_name(meter) == {"background": (1.0, True), "a": (0.75, True), "b": (None, False)}


def test_a_few_pixels_are_shown_but_not_firm():
    meter = AgreementMeter(match_classes(OLD, NEW), 10.0, min_share=0.05)
    meter.add(0.0, strip(4), strip(0))
    assert by_name(meter)["a"] == (0.0, False)
    meter.add(0.5, strip(5), strip(5))
    assert by_name(meter)["a"] == (pytest.approx(5 / 9), True)


def big(*counts):
    return np.repeat(strip(*counts), 40, axis=0)


def test_flicker_counts_flips_only_where_the_picture_stands_still():
    meter = FlickerMeter(NEW, 10.0, 0.001, still=8)
    picture = np.full((40, 100, 3), 100, np.uint8)
    moved = picture.copy()
    moved[:, :50] = 200
    meter.add(0.0, picture, big(40))
    assert by_name(meter)["a"] == (None, False)
    meter.add(0.1, picture, big(30))
    assert by_name(meter)["a"] == (pytest.approx(10 / 40), False)
    assert by_name(meter)["background"][0] == pytest.approx(10 / 70)
    meter.add(0.2, moved, big(0))
    assert by_name(meter)["a"][0] == pytest.approx(10 / 40), "class a went with what moved"
    meter.add(0.3, moved, big(0, 60))
    found = by_name(meter)
    assert found["a"][0] == pytest.approx(10 / 40) and found["b"] == (pytest.approx(1.0), False)


def test_flicker_is_firm_after_enough_sights():
    meter = FlickerMeter(NEW, 10.0, 0.01, still=8)
    picture = np.full((40, 100, 3), 100, np.uint8)
    for index in range(1 + FLICKER_SIGHTS):
        assert not by_name(meter)["a"][1]
        meter.add(index / 10, picture, big(40 if index else 0))
    assert by_name(meter)["a"] == (pytest.approx(1 / FLICKER_SIGHTS), True), "it came into sight once"


def shares(a, b=0.0):
    return np.array([1 - a - b, a, b])


def test_drift_against_the_first_seconds():
    reference = Reference(2.0)
    meter = DriftMeter(OLD, reference, 1.0, min_share=0.01)
    for index in range(20):
        meter.add(index / 10, shares(0.2, 0.005))
    assert by_name(meter) == {"a": (None, False), "b": (None, False)}, "the reference is not complete"
    for index in range(20, 40):
        meter.add(index / 10, shares(0.3, 0.0))
    found = by_name(meter)
    assert found["a"] == (pytest.approx(0.5), True)
    assert found["b"] == (pytest.approx(-1.0), False), "too small to judge"
    assert set(found) == {"a", "b"}, "the background is the rest and says nothing of its own"


def test_drift_against_a_known_baseline_is_firm_after_a_whole_window():
    meter = DriftMeter(NEW, Reference(60.0, {"a": 0.4}), 2.0, min_share=0.01)
    meter.add(0.0, np.array([0.6, 0.1, 0.1, 0.2]))
    assert by_name(meter) == {"a": (pytest.approx(-0.75), False), "b": (None, False), "c": (None, False)}
    meter.add(2.0, np.array([0.6, 0.1, 0.1, 0.2]))
    assert by_name(meter)["a"] == (pytest.approx(-0.75), True)
