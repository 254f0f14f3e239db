import numpy as np
import pytest

from rcil.model.metadata import class_table
from rcil.report.pictures import ERRORS, draw_evaluation, errors

CLASSES = class_table([["background", "ball", "cone"]])


@pytest.mark.parametrize(
    ("truth", "predicted", "kind"),
    [
        (0, 0, "right"),
        (1, 1, "right"),
        (255, 2, "right"),
        (1, 0, "error: class missed"),
        (0, 1, "error: class where it is not"),
        (1, 2, "error: another class"),
    ],
)
def test_kinds(truth, predicted, kind):
    kinds = errors(*(np.full((1, 1), row, np.uint8) for row in (truth, predicted)))
    assert ERRORS[kinds[0, 0]][0] == kind


def test_right_pixels_are_faint_and_wrong_ones_strong():
    truth, predicted = np.ones((20, 40), np.uint8), np.ones((20, 40), np.uint8)
    predicted[:, 20:] = 0
    picture = draw_evaluation(np.full((20, 40, 3), 100, np.uint8), truth, predicted, CLASSES)
    width = picture.shape[1] // 4
    left, right = (picture[50, 3 * width + x] for x in (width // 4, 3 * width // 4))
    assert left.tolist() == pytest.approx([70 + 0.3 * c for c in CLASSES[1].colour], abs=1)
    assert right.tolist() == pytest.approx([10 + 0.9 * c for c in dict(ERRORS)["error: class missed"]], abs=1)
