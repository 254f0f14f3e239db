import numpy as np
import pytest

from rcil.core.drawing import legend
from rcil.site.forgetting import Views
from rcil.site.picture import KINDS, difference, draw_difference


@pytest.mark.parametrize(
    ("old", "new", "kind"),
    [
        (0, 0, "same"),
        (1, 1, "same"),
        (0, 3, "background -> new class"),
        (1, 0, "old class -> background"),
        (1, 2, "old class -> other old class"),
        (2, 3, "old class -> new class"),
        (0, 1, "background -> old class"),
    ],
)
def test_kinds(old, new, kind):
    kinds = difference(np.full((2, 3), old, np.uint8), np.full((2, 3), new, np.uint8), 3)
    assert kinds.shape == (2, 3)
    assert {KINDS[k][0] for k in np.unique(kinds)} == {kind}


@pytest.mark.parametrize("size", [(40, 60), (900, 1200)])
def test_the_picture(size, described):
    old, new = np.zeros(size, np.uint8), np.zeros(size, np.uint8)
    half = size[1] // 2
    old[:, :half] = 1  # ball, forgotten on the left
    new[:, half:] = 2  # cone, learned on the right
    views = Views(np.full((*size, 3), 100, np.uint8), new, old, new)
    classes = described(["background", "ball"], ["cone"]).classes
    picture = draw_difference(views, classes, 2)
    width = picture.shape[1] // 4
    assert width <= 428
    row = picture[30 + 20]

    def blend(colour, alpha):
        return [round(100 * (1 - alpha) + alpha * c) for c in colour]

    expected = [
        ([100] * 3, [100] * 3),
        (blend(classes[1].colour, 0.5), [100] * 3),
        ([100] * 3, blend(classes[2].colour, 0.5)),
        (blend(dict(KINDS)["old class -> background"], 0.75), blend(dict(KINDS)["background -> new class"], 0.75)),
    ]
    for panel, (left, right) in enumerate(expected):
        assert row[panel * width + width // 4].tolist() == pytest.approx(left, abs=1)
        assert row[panel * width + 3 * width // 4].tolist() == pytest.approx(right, abs=1)
    named = legend([("ball", classes[1].colour), ("cone", classes[2].colour)], picture.shape[1])
    changed = legend([KINDS[1], KINDS[2]], picture.shape[1])
    assert np.array_equal(picture[-len(named) - len(changed) :], np.vstack([named, changed]))
