"""Painting in YUV gives the colours of painting in RGB: at edges, odd sizes, and in all colour spaces."""

import cv2
import numpy as np
import pytest

from rcil.model.metadata import class_table
from rcil_serve.runtime.painter import Painter
from rcil_serve.runtime.planes import ColourSpace, Planes

CLASSES = class_table([["background", "ball", "cone", "crate", "forklift"]])
SPACES = [ColourSpace(matrix, full) for matrix in ("bt601", "bt709") for full in (False, True)]
SIZES = [(96, 128), (95, 127), (96, 127)]
RANDOM = np.random.default_rng(0)


def scene(size, space):
    """Planes of a smooth image without saturated colours, whose conversion would clip."""
    coarse = RANDOM.integers(60, 196, (5, 7, 3), dtype=np.uint8)
    image = cv2.resize(coarse, size[::-1], interpolation=cv2.INTER_CUBIC)
    planes = Planes.empty(size, space)
    Planes.of_rgb(image, space).copy_to(planes)
    return planes


def blobs(size, grid):
    """A mask [H, W] of areas whose edges lie anywhere, enlarged from the grid if there is one."""
    small = RANDOM.integers(0, len(CLASSES), (7, 9), dtype=np.uint8)
    mask = cv2.resize(small, (grid or size)[::-1], interpolation=cv2.INTER_NEAREST)
    return cv2.resize(mask, size[::-1], interpolation=cv2.INTER_NEAREST_EXACT)


@pytest.mark.parametrize("alpha", [0.3, 0.5, 1.0])
@pytest.mark.parametrize("grid", [None, (36, 48), (60, 80)])
@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("space", SPACES, ids=str)
def test_planes_are_painted_like_rgb(space, size, grid, alpha):
    planes, mask = scene(size, space), blobs(size, grid)
    painter = Painter(CLASSES, alpha)
    found = painter.paint(planes, mask, grid)
    expected = Planes.of_rgb(painter.paint(planes.rgb(), mask, grid), space)
    limits = (3, 6) if grid is None else (12, 16)
    for name, limit in zip("yuv", (limits[0], limits[1], limits[1]), strict=True):
        difference = np.abs(getattr(found, name).astype(int) - getattr(expected, name))
        assert difference.mean() < 1.2 and np.percentile(difference, 99.5) <= limit, name


@pytest.mark.parametrize("size", SIZES)
def test_a_block_of_chroma_at_an_edge_gets_the_mean_of_its_pixels(size):
    """Columns from 33 on are painted: the block of columns 32 and 33 is half painted."""
    space = ColourSpace()
    planes = Planes.of_rgb(np.full((*size, 3), 90, np.uint8), space)
    mask = np.zeros(size, np.uint8)
    mask[:, 33:] = 1
    drawn = Painter(CLASSES, 0.5).paint(planes, mask)
    pure = np.array(CLASSES[1].colour) @ space.from_rgb()[:, :3].T + space.from_rgb()[:, 3]
    for plane, before, colour in ((drawn.u, 128, pure[1]), (drawn.v, 128, pure[2])):
        full = (before + colour) / 2
        np.testing.assert_allclose(plane[:, :16], before, atol=1)
        np.testing.assert_allclose(plane[:, 16], (before + full) / 2, atol=1.5)
        np.testing.assert_allclose(plane[:, 17:], full, atol=1.5)


@pytest.mark.parametrize("grid", [None, (24, 32)])
def test_what_is_not_painted_stays_exactly(grid):
    planes = scene((96, 128), ColourSpace())
    before = [plane.copy() for plane in (planes.y, planes.u, planes.v)]
    drawn = Painter(CLASSES).paint(planes, np.zeros((96, 128), np.uint8), grid)
    for plane, given, kept in zip((drawn.y, drawn.u, drawn.v), (planes.y, planes.u, planes.v), before, strict=True):
        np.testing.assert_array_equal(plane, kept)
        np.testing.assert_array_equal(given, kept)
        assert not np.may_share_memory(plane, given)


@pytest.mark.parametrize("grid", [None, (36, 48), (45, 60), (31, 47)])
@pytest.mark.parametrize("size", [(96, 128), (90, 120), (95, 128), (96, 127)])
def test_a_small_area_is_painted_as_part_of_a_large_one(size, grid):
    """An area in each corner makes the whole image the painted part; away from them, nothing may change."""
    planes = scene(size, ColourSpace())
    for top, left in ((0, 0), (40, 52), (size[0] - 21, size[1] - 33), (0, size[1] - 20), (37, 0)):
        mask = np.zeros(grid or size, np.uint8)
        down, right = mask.shape[0] / size[0], mask.shape[1] / size[1]
        rows = slice(round(top * down), round((top + 21) * down))
        columns = slice(round(left * right), round((left + 33) * right))
        mask[rows, columns] = RANDOM.integers(1, 5, mask[rows, columns].shape, dtype=np.uint8)
        large = mask.copy()
        large[[0, 0, -1, -1], [0, -1, 0, -1]] = 2
        small, whole = (
            Painter(CLASSES).paint(planes, cv2.resize(one, size[::-1], interpolation=cv2.INTER_NEAREST_EXACT), grid)
            for one in (mask, large)
        )
        away = np.ones(size, bool)
        reach = 12
        for block in ((0, 0), (0, -reach), (-reach, 0), (-reach, -reach)):
            away[block[0] : (block[0] + reach) or None, block[1] : (block[1] + reach) or None] = False
        halves = np.asarray(cv2.resize(away.astype(np.uint8), small.u.shape[::-1], interpolation=cv2.INTER_NEAREST))
        for name, where in (("y", away), ("u", halves > 0), ("v", halves > 0)):
            difference = np.abs(getattr(small, name).astype(int) - getattr(whole, name))[where]
            assert difference.max() <= 1, (name, top, left)


@pytest.mark.parametrize("size", [(400, 600), (401, 601), (401, 600)])
def test_the_legend_is_the_same(size):
    planes = scene(size, ColourSpace("bt709"))
    painter, mask = Painter(CLASSES, with_legend=True), np.zeros(size, np.uint8)
    found, expected = painter.paint(planes, mask).rgb(), painter.paint(planes.rgb(), mask)
    difference = np.abs(found.astype(int) - expected)
    changed = np.abs(expected.astype(int) - planes.rgb()).max(axis=2) > 8
    assert changed[-20:].mean() > 0.2 and not changed[: size[0] // 2].any()
    assert np.percentile(difference[~changed], 99) <= 12 and difference[changed].mean() < 6


def test_more_than_256_classes_are_painted():
    table = class_table([["background", *(f"class {index}" for index in range(300))]])
    planes, mask = scene((32, 48), ColourSpace()), np.full((32, 48), 290, np.int32)
    drawn = Painter(table, 1.0).paint(planes, mask)
    expected = Planes.of_rgb(np.full((32, 48, 3), table[290].colour, np.uint8), ColourSpace())
    for name in "yuv":
        np.testing.assert_allclose(getattr(drawn, name).astype(int), getattr(expected, name), atol=1)
