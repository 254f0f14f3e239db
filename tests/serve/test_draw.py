import numpy as np
import pytest

from rcil.checkpoint.metadata import class_table
from rcil_serve.draw import legend, lut_of, overlay

CLASSES = class_table([["background", "ball"], ["cone"]])


def test_lut():
    lut = lut_of(CLASSES)
    assert lut.shape == (256, 3)
    assert lut[1].tolist() == [128, 0, 0]
    assert lut[200].tolist() == [0, 0, 0]


def test_overlay_blends_classes_and_leaves_background_and_ignored_pixels():
    image = np.full((1, 4, 3), 100, np.uint8)
    mask = np.array([[0, 1, 2, 255]], np.uint8)
    drawn = overlay(image, mask, lut_of(CLASSES), 0.5)
    assert drawn[0].tolist() == [[100, 100, 100], [114, 50, 50], [50, 114, 50], [100, 100, 100]]
    assert image.max() == 100, "the input is not touched"


@pytest.mark.parametrize(("alpha", "expected"), [(0.0, [100, 100, 100]), (1.0, [128, 0, 0])])
def test_alpha_ends(alpha, expected):
    image, mask = np.full((1, 1, 3), 100, np.uint8), np.ones((1, 1), np.uint8)
    assert overlay(image, mask, lut_of(CLASSES), alpha)[0, 0].tolist() == expected


def test_the_legend_shows_every_colour_and_wraps():
    wide, narrow = legend(CLASSES, 600), legend(CLASSES, 120)
    assert wide.shape[1] == 600
    assert narrow.shape[1] == 120
    assert narrow.shape[0] > wide.shape[0]
    for canvas in (wide, narrow):
        seen = {tuple(pixel) for pixel in canvas.reshape(-1, 3).tolist()}
        assert {c.colour for c in CLASSES} <= seen
