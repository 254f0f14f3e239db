import numpy as np
import pytest

from rcil.core.drawing import legend
from rcil.site.forgetting import Views
from rcil.site.picture import ERRORS, KINDS, difference, draw_step, reference, step_errors


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


def one_pixel(truth, old, new):
    return Views(np.zeros((1, 1, 3), np.uint8), *(np.full((1, 1), row, np.uint8) for row in (truth, old, new)))


@pytest.mark.parametrize(
    ("truth", "old", "new", "kind"),
    [
        (1, 0, 1, "right"),
        (255, 0, 1, "right"),
        (3, 0, 0, "error: new class missed"),
        (3, 0, 2, "error: new class missed"),
        (0, 0, 3, "error: new class where it is not"),
        (1, 1, 3, "error: new class where it is not"),
        (1, 1, 0, "error: the old model was right"),
        (1, 2, 2, "error of both models"),
        (1, 2, 0, "error of both models"),
    ],
)
def test_errors(truth, old, new, kind):
    views = one_pixel(truth, old, new)
    assert ERRORS[step_errors(views, views.truth, 3)[0, 0]][0] == kind


def test_the_old_model_stands_for_labels_that_are_missing():
    assert reference(one_pixel(0, 1, 0), [1])[0, 0] == 1
    assert reference(one_pixel(0, 1, 0), [2])[0, 0] == 0, "its labels exist"
    assert reference(one_pixel(2, 1, 0), [1])[0, 0] == 2, "labelled as something else"


@pytest.mark.parametrize("size", [(40, 60), (900, 1200)])
def test_the_picture(size, described):
    old, new, truth = (np.zeros(size, np.uint8) for _ in range(3))
    half = size[1] // 2
    old[:, :half] = truth[:, :half] = 1  # ball, forgotten on the left
    new[:, half:] = truth[:, half:] = 2  # cone, learned on the right
    views = Views(np.full((*size, 3), 100, np.uint8), truth, old, new)
    classes = described(["background", "ball"], ["cone"]).classes
    picture = draw_step(views, classes, 2, {"ball"})
    width = picture.shape[1] // 3
    assert width <= 428

    def blend(colour, alpha):
        return [round(100 * (1 - alpha) + alpha * c) for c in colour]

    plain, ball, cone = [100] * 3, *(blend(classes[row].colour, 0.5) for row in (1, 2))
    lost = blend(dict(ERRORS)["error: the old model was right"], 0.9)
    changes = [blend(dict(KINDS)[kind], 0.75) for kind in ("old class -> background", "background -> new class")]
    top = [(plain, plain), (ball, cone), (lost, blend(classes[2].colour, 0.3))]
    bottom = [(ball, plain), (plain, cone), tuple(changes)]
    legends = [
        legend([("ball", classes[1].colour), ("cone", classes[2].colour)], picture.shape[1]),
        legend([ERRORS[3]], picture.shape[1]),
        legend([KINDS[1], KINDS[2]], picture.shape[1]),
    ]
    below = sum(map(len, legends))
    for first, panels in ((0, top), ((len(picture) - below) // 2, bottom)):
        row = picture[first + 30 + 20]
        for panel, (left, right) in enumerate(panels):
            assert row[panel * width + width // 4].tolist() == pytest.approx(left, abs=1)
            assert row[panel * width + 3 * width // 4].tolist() == pytest.approx(right, abs=1)
    assert np.array_equal(picture[-below:], np.vstack(legends))
