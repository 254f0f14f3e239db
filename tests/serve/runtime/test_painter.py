import numpy as np
import pytest

from rcil.core.errors import ConfigError
from rcil.model.metadata import class_table
from rcil_serve.runtime.painter import Painter, shares

CLASSES = class_table([["background", "ball", "cone", "crate"]])
RANDOM = np.random.default_rng(0)
IMAGE = RANDOM.integers(0, 256, (20, 30, 3), dtype=np.uint8)
MASK = RANDOM.integers(0, 4, (20, 30), dtype=np.uint8)


def blended(alpha, rows):
    colours = np.array([c.colour for c in CLASSES])[MASK]
    mixed = (1 - alpha) * IMAGE.astype(float) + alpha * colours
    return np.where(np.isin(MASK, rows)[..., None], mixed, IMAGE)


@pytest.mark.parametrize("kind", [np.uint8, np.int32])
def test_classes_are_blended_and_the_background_stays(kind):
    drawn = Painter(CLASSES, 0.3).paint(IMAGE, MASK.astype(kind))
    assert np.abs(drawn - blended(0.3, [1, 2, 3])).max() <= 1
    assert (drawn[MASK == 0] == IMAGE[MASK == 0]).all()


def test_only_the_wanted_classes_are_painted():
    drawn = Painter(CLASSES, 0.5, ["cone"]).paint(IMAGE, MASK)
    assert np.abs(drawn - blended(0.5, [2])).max() <= 1
    with pytest.raises(ConfigError, match="no class 'cane'\nDid you mean 'cone'"):
        Painter(CLASSES, only=["cane"])


def test_a_legend_is_drawn_into_the_corner_only():
    image = np.zeros((200, 300, 3), np.uint8)
    drawn = Painter(CLASSES, with_legend=True).paint(image, np.zeros((200, 300), np.uint8))
    assert drawn[-20:].any() and not drawn[:100].any()


def test_shares_are_counts():
    expected = np.bincount(MASK.ravel(), minlength=4) / MASK.size
    np.testing.assert_allclose(shares(MASK, 4), expected, rtol=1e-6)
    np.testing.assert_allclose(shares(MASK.astype(np.int32), 4), expected)
