import numpy as np
import pytest

from rcil.core.drawing import drawable, grid, legend, lut_of, overlay

COLOURS = {0: (0, 0, 0), 1: (128, 0, 0), 2: (0, 128, 0)}
ENTRIES = list(zip(("background", "ball", "cone"), COLOURS.values(), strict=True))


def test_lut():
    lut = lut_of(COLOURS)
    assert lut.shape == (256, 3)
    assert lut[1].tolist() == [128, 0, 0]
    assert lut[200].tolist() == [0, 0, 0]


def test_overlay_blends_classes_and_leaves_background_and_ignored_pixels():
    image = np.full((1, 4, 3), 100, np.uint8)
    mask = np.array([[0, 1, 2, 255]], np.uint8)
    drawn = overlay(image, mask, lut_of(COLOURS), 0.5)
    assert drawn[0].tolist() == [[100, 100, 100], [114, 50, 50], [50, 114, 50], [100, 100, 100]]
    assert image.max() == 100, "the input is not touched"


@pytest.mark.parametrize(("alpha", "expected"), [(0.0, [100, 100, 100]), (1.0, [128, 0, 0])])
def test_alpha_ends(alpha, expected):
    image, mask = np.full((1, 1, 3), 100, np.uint8), np.ones((1, 1), np.uint8)
    assert overlay(image, mask, lut_of(COLOURS), alpha)[0, 0].tolist() == expected


def test_the_legend_shows_every_colour_and_wraps():
    wide, narrow = legend(ENTRIES, 600), legend(ENTRIES, 120)
    assert wide.shape[1] == 600
    assert narrow.shape[1] == 120
    assert narrow.shape[0] > wide.shape[0]
    for canvas in (wide, narrow):
        seen = {tuple(pixel) for pixel in canvas.reshape(-1, 3).tolist()}
        assert set(COLOURS.values()) <= seen


def test_grid_places_images_and_titles():
    red, blue = (np.full((10, 20, 3), colour, np.uint8) for colour in ((255, 0, 0), (0, 0, 255)))
    canvas = grid([[red, blue], [blue]], ["one", "two"], margin=2)
    assert canvas.shape == (30 + 2 * 14, 2 * 24, 3)
    assert canvas[30 + 7, 12].tolist() == [255, 0, 0]
    assert canvas[30 + 14 + 7, 12].tolist() == [0, 0, 255]
    assert canvas[30 + 14 + 7, 36].tolist() == [255, 255, 255]
    assert (canvas[:30] < 100).any(), "titles are drawn"


def test_half_characters_are_drawn_as_something_else():
    """OpenCV ends the process over them."""
    assert drawable("caf\u00e9 \ud800") == "caf\u00e9 ?"
    assert legend([("\udcff", (1, 2, 3))], 100).shape == (26, 100, 3)
