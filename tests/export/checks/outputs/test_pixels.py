import numpy as np
import pytest

from rcil_export.checks.outputs.pixels import Disagreements, top2_margins


def test_counts_by_hand_over_two_images():
    swaps = Disagreements(["background", "car", "crate"])
    swaps.add(np.array([0, 0, 1]), np.array([2, 2, 0]), np.array([0.1, 0.3, 0.2], np.float32))
    swaps.add(np.array([0, 2]), np.array([2, 1]), np.array([0.2, 0.4], np.float32))
    found = swaps.swaps()
    assert [(s.first, s.second, s.pixels) for s in found] == [
        ("background", "crate", 3),
        ("car", "background", 1),
        ("crate", "car", 1),
    ]
    assert [s.margin for s in found] == pytest.approx([0.2, 0.2, 0.4], rel=0.024)


def test_without_logits_the_margin_is_unknown():
    swaps = Disagreements(["background", "car"])
    swaps.add(np.array([0]), np.array([1]), None)
    assert np.isnan(swaps.swaps()[0].margin)
    assert swaps.swaps()[0].as_document()["median_margin"] is None


def test_no_disagreement_no_swaps():
    swaps = Disagreements(["background", "car"])
    swaps.add(np.array([], np.int64), np.array([], np.int64), np.array([], np.float32))
    assert swaps.swaps() == ()


def test_margins_by_hand():
    logits = np.array([[1, 5], [4, 5], [2, -1]], np.float32)
    assert top2_margins(logits).tolist() == [2, 0]
    assert np.isinf(top2_margins(logits[:1])).all()


def test_what_is_no_class_has_a_name_of_its_own():
    swaps = Disagreements(["background", "car"])
    swaps.add(np.array([1, -1, 0]), np.array([-1, 1, -1]), np.array([0.1, 0.2, 0.3], np.float32))
    assert {(s.first, s.second): s.pixels for s in swaps.swaps()} == {
        ("background", "no class"): 1,
        ("car", "no class"): 1,
        ("no class", "car"): 1,
    }
