"""Expected values are computed by hand from the filters of Pillow, which the published codes resize with."""

import numpy as np
import pytest

from rcil.evaluation.resampling import centre_crop, resize_pair


def row(values, channels=3):
    return np.repeat(np.array(values, np.uint8)[None, :, None], channels, axis=2)


def resized_row(values, width):
    image, _ = resize_pair(row(values), np.zeros((1, len(values)), np.uint8), 1, width)
    return image[0, :, 1].tolist()


def test_enlarging_is_bilinear_between_pixel_centres():
    assert resized_row([0, 100], 4) == [0, 25, 75, 100]


def test_shrinking_weighs_all_pixels_below_a_triangle():
    """To half the width: weights 0.75, 0.75, 0.25 over 1.75, mirrored for the second pixel."""
    assert resized_row([0, 100, 200, 40], 2) == [71, 117]


@pytest.mark.parametrize(("width", "expected"), [(3, [0, 2, 4]), (2, [1, 3]), (10, [0, 0, 1, 1, 2, 2, 3, 3, 4, 4])])
def test_masks_take_the_pixel_below_the_centre(width, expected):
    mask = np.arange(5, dtype=np.uint8)[None].repeat(2, 0)
    assert resize_pair(np.zeros((2, 5, 3), np.uint8), mask, 2, width)[1].tolist() == [expected, expected]


@pytest.mark.parametrize(
    ("size", "side", "rows", "columns"),
    [
        ((6, 10), 3, [1, 3, 5], [3, 5, 7]),  # 3 x 5, without the first and the last column
        ((10, 6), 3, [3, 5, 7], [1, 3, 5]),
        ((4, 5), 4, [0, 1, 2, 3], [0, 1, 2, 3]),  # half a column too many: rounded to the even 0
        ((4, 7), 4, [0, 1, 2, 3], [2, 3, 4, 5]),  # 1.5 is rounded to 2
        ((2, 3), 4, [0, 0, 1, 1], [0, 1, 1, 2]),  # 4 x 6
    ],
)
def test_centre_crops(size, side, rows, columns):
    down, across = np.meshgrid(np.arange(size[0]), np.arange(size[1]), indexing="ij")
    image = np.repeat((down * 20)[..., None], 3, axis=2).astype(np.uint8)
    cut, mask = centre_crop(image, (10 * down + across).astype(np.uint8), side)
    assert cut.shape == (side, side, 3)
    assert mask.tolist() == [[10 * r + c for c in columns] for r in rows]
    if side == size[0]:
        assert (cut == image[:, :1]).all()
