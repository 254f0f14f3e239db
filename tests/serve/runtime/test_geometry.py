from itertools import pairwise

import numpy as np
import pytest

from rcil.core.errors import ConfigError
from rcil_export.graph.shapes import InputShape, parse_shape
from rcil_serve.runtime.geometry import Letterbox, letterbox, letterbox_for, tiles


@pytest.mark.parametrize("image", [(48, 64), (30, 90), (91, 17), (7, 7), (200, 100)])
@pytest.mark.parametrize("canvas", [(64, 64), (33, 50), (96, 128)])
def test_a_mask_of_the_placed_image_comes_back_exactly(image, canvas):
    """Whole rows and columns of colour survive there and back wherever the image is not made smaller."""
    box = letterbox(image, canvas)
    assert box.inner[0] <= canvas[0] and box.inner[1] <= canvas[1]
    assert box.inner[0] == canvas[0] or box.inner[1] == canvas[1]
    whole = np.zeros(canvas, np.uint8)
    top, left = box.corner
    whole[top : top + box.inner[0], left : left + box.inner[1]] = 1
    assert box.undo(whole).shape == image
    assert box.undo(whole).all()


def test_doubling_and_back_is_the_identity():
    mask = np.random.default_rng(0).integers(0, 9, (12, 10), dtype=np.uint8)
    box = letterbox((12, 10), (24, 40))
    canvas = np.zeros((24, 40), np.uint8)
    top, left = box.corner
    canvas[top : top + 24, left : left + 20] = mask.repeat(2, 0).repeat(2, 1)
    np.testing.assert_array_equal(box.undo(canvas), mask)
    np.testing.assert_array_equal(box.undo(canvas.astype(np.int32)), mask)


def test_bars_have_the_fill_colour_and_the_image_lies_between():
    image = np.full((10, 20, 3), 200, np.uint8)
    placed = letterbox((10, 20), (20, 20)).place(image, (1, 2, 3))
    assert (placed[5:15] == 200).all()
    assert (placed[:5] == (1, 2, 3)).all() and (placed[15:] == (1, 2, 3)).all()


def test_what_fits_goes_in_as_it_is():
    open_shape = parse_shape(None, "16x16:48x64:100x120")
    assert letterbox_for((50, 60), open_shape, None) == Letterbox((50, 60), (50, 60), (50, 60))
    assert letterbox_for((200, 120), open_shape, None) == Letterbox((200, 120), (100, 60), (100, 60))
    assert letterbox_for((8, 40), open_shape, None) == Letterbox((8, 40), (8, 40), (16, 40))
    assert letterbox_for((10, 20), InputShape.of(40, 40), None) == Letterbox((10, 20), (20, 40), (40, 40))
    assert letterbox_for((10, 20), open_shape, (40, 40)).inner == (20, 40)
    with pytest.raises(ConfigError, match=r"not 400x400"):
        letterbox_for((10, 20), open_shape, (400, 400))


def test_a_scale_is_for_open_sizes_alone():
    open_shape = parse_shape(None, "16x16:48x64:100x120")
    assert letterbox_for((100, 60), open_shape, None, 0.5) == Letterbox((100, 60), (50, 30), (50, 30))
    assert letterbox_for((40, 30), open_shape, None, 2.0) == Letterbox((40, 30), (80, 60), (80, 60))
    assert letterbox_for((80, 60), open_shape, None, 2.0).inner == (100, 75), "the largest that the model takes"
    assert letterbox_for((40, 20), open_shape, None, 0.5) == Letterbox((40, 20), (20, 10), (20, 16))
    fixed = InputShape.of(40, 40)
    assert letterbox_for((10, 20), fixed, None, 0.5) == letterbox_for((10, 20), fixed, None)


@pytest.mark.parametrize(("image", "tile", "overlap"), [((100, 70), 32, 8), ((33, 32), 32, 8), ((20, 90), 32, 0)])
def test_tiles_keep_every_pixel_once_and_overlap(image, tile, overlap):
    seen = np.zeros(image, int)
    for part in tiles(image, tile, overlap):
        assert part.rows.stop - part.rows.start == min(tile, image[0])
        assert part.rows.start <= part.keep_rows.start < part.keep_rows.stop <= part.rows.stop
        seen[part.keep_rows, part.keep_columns] += 1
        own = np.ones((part.rows.stop - part.rows.start, part.columns.stop - part.columns.start), np.uint8)
        assert part.kept(own).shape == seen[part.keep_rows, part.keep_columns].shape
    assert (seen == 1).all()
    starts = sorted({part.columns.start for part in tiles(image, tile, overlap)})
    assert all(a + tile - b >= overlap for a, b in pairwise(starts))


def test_an_overlap_as_large_as_the_tile_is_an_error():
    with pytest.raises(ConfigError, match="cannot overlap by 32"):
        tiles((100, 100), 32, 32)


@pytest.mark.parametrize("size", [(720, 1280), (97, 41), (30, 40), (60, 80), (200, 30)])
def test_a_letterbox_is_the_scaled_image_inside_the_fill(size):
    """Border and image are written once each; the result is that of filling everything and copying."""
    image = np.random.default_rng(0).integers(0, 256, (*size, 3), np.uint8)
    for canvas in ((48, 64), (64, 48), (60, 100)):
        box = letterbox(size, canvas)
        expected = np.empty((*canvas, 3), np.uint8)
        expected[:] = (1, 2, 3)
        (top, left), whole = box.corner, Letterbox(size, box.inner, box.inner)
        expected[top : top + box.inner[0], left : left + box.inner[1]] = whole.place(image, (0, 0, 0))
        np.testing.assert_array_equal(box.place(image, (1, 2, 3)), expected)
