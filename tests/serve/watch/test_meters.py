import numpy as np
import pytest

from rcil.model.class_match import match_classes
from rcil.model.metadata import class_table
from rcil_serve.watch.meters import (
    BINS,
    BLUR,
    FLICKER_SIGHTS,
    REACH,
    AgreementMeter,
    DriftMeter,
    FlickerMeter,
    Stillness,
    Window,
)
from rcil_serve.watch.shares import Reference

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


def test_the_surroundings_of_what_moves_count_as_moved():
    before = np.full((60, 80, 3), 90, np.uint8)
    after = before.copy()
    after[20:30, 40:50] = 200
    stillness = Stillness(8)
    assert stillness.since_last(before) is None
    still = stillness.since_last(after)
    reach = BLUR // 2 + REACH // 2
    wanted = np.full((60, 80), 255, np.uint8)
    wanted[20 - reach : 30 + reach, 40 - reach : 50 + reach] = 0
    corners = np.zeros((60, 80), bool)
    for top in (20 - reach, 30 + reach - 1):
        for left in (40 - reach, 50 + reach - 1):
            corners[top, left] = True  # there the blur leaves too little
    np.testing.assert_array_equal(still[~corners], wanted[~corners])
    assert (stillness.since_last(after) == 255).all()


def test_noise_is_no_motion_and_a_new_size_starts_anew():
    rng = np.random.default_rng(0)
    stillness = Stillness(8)
    for index in range(5):
        noisy = np.clip(120 + rng.normal(0, 5, (60, 80, 3)), 0, 255).astype(np.uint8)
        still = stillness.since_last(noisy)
        assert index == 0 or (still == 255).mean() > 0.99
    assert stillness.since_last(noisy[:50]) is None


def test_only_the_last_seconds_count():
    window = Window(60.0, 2)
    for second in range(200):
        window.add(second + 0.5, np.array([1.0, second]))
        low = max(0, second - 59)
        assert window.total().tolist() == [second - low + 1, sum(range(low, second + 1))]
        assert window.is_full == (second >= 59)


def test_numbers_of_one_bin_add_up_and_gaps_empty_the_window():
    window = Window(6.0, 1)
    for time in (0.0, 0.01, 0.05, 5.95):
        window.add(time, np.ones(1))
    assert window.total() == [4]
    window.add(6.05, np.ones(1))
    assert window.total() == [2], "what came within the first bin is gone"
    window.add(1000.0, np.ones(1))
    assert window.total() == [1]


def test_an_empty_window_sums_to_nothing_and_memory_does_not_grow():
    window = Window(1.0, 3)
    assert window.total().tolist() == [0, 0, 0] and not window.is_full
    for index in range(1000):
        window.add(index / 7, np.ones(3))
    assert window._sums.shape == (BINS, 3)
