import cv2
import numpy as np
import pytest

from rcil.core.drawing import blend, drawable, grid, legend, lut_of, overlay

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


class TestEnlargedMasks:
    """A mask of 30 x 40 pixels that was enlarged four times."""

    SMALL = np.zeros((30, 40), np.uint8)
    SMALL[8:22, 10:30], SMALL[12:22, 20:30], SMALL[3, :] = 1, 2, 2
    IMAGE = np.random.default_rng(0).integers(0, 256, (120, 160, 3), np.uint8)
    LUT = lut_of(COLOURS)
    UNTOUCHED = np.array([255, *[0] * 255], np.uint8)

    def drawn(self, alpha=0.5, grid_size=(30, 40), kind=np.uint8, factor=4.0):
        size = round(30 * factor), round(40 * factor)
        mask = cv2.resize(self.SMALL, size[::-1], interpolation=cv2.INTER_NEAREST_EXACT).astype(kind)
        image = cv2.resize(self.IMAGE, size[::-1], interpolation=cv2.INTER_NEAREST)
        return blend(image, mask, self.LUT, self.UNTOUCHED, alpha, grid_size).astype(int)

    @pytest.mark.parametrize("alpha", [0.0, 0.3, 1.0])
    @pytest.mark.parametrize("factor", [1.7, 4.0])
    def test_pixels_away_from_edges_are_the_same(self, alpha, factor):
        smooth, sharp = self.drawn(alpha, factor=factor), self.drawn(alpha, None, factor=factor)
        edges = cv2.morphologyEx(self.SMALL, cv2.MORPH_GRADIENT, np.ones((7, 7)))
        away = cv2.resize(edges, smooth.shape[1::-1], interpolation=cv2.INTER_NEAREST_EXACT) == 0
        assert away.mean() > 0.1
        assert abs(smooth - sharp)[away].max() <= 1

    def test_opacity_decreases_gradually_across_an_edge(self):
        """Rows 40 to 80 of the picture are class 1 from column 40; black shows the opacity alone."""
        image = np.zeros_like(self.IMAGE)
        mask = cv2.resize(self.SMALL, (160, 120), interpolation=cv2.INTER_NEAREST_EXACT)
        red = blend(image, mask, self.LUT, self.UNTOUCHED, 1.0, (30, 40))[40, 30:52, 0].astype(int)
        assert red[0] == 0 and red[-1] == 128 and (np.diff(red) >= 0).all()
        assert len(set(red.tolist())) >= 6, "a sharp edge has two values"
        assert abs(red[10] + red[9] - 128) <= 2, "the edge stays where it was"

    def test_lines_of_one_small_pixel_remain(self):
        """Row 3 of the small mask is class 2; the blur takes up to half of its opacity."""
        mask = cv2.resize(self.SMALL, (160, 120), interpolation=cv2.INTER_NEAREST_EXACT)
        green = blend(np.zeros_like(self.IMAGE), mask, self.LUT, self.UNTOUCHED, 1.0, (30, 40))[:, 80, 1]
        assert 0.4 * 128 < green[12:16].min() < green[12:16].max() < 0.8 * 128
        assert green[:6].max() <= 2

    def test_wide_masks_are_drawn_the_same(self):
        assert abs(self.drawn() - self.drawn(kind=np.uint16)).max() == 0

    def test_a_mask_that_was_not_enlarged_is_drawn_exactly(self):
        assert (self.drawn(grid_size=(120, 160)) == self.drawn(grid_size=None)).all()
