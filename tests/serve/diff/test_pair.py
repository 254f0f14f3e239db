import numpy as np
import pytest

from rcil.model.metadata import class_table
from rcil_serve.diff.classes import common_classes, kind_table
from rcil_serve.diff.pair import Codes, Pair
from rcil_serve.runtime.predictor import Layout, Predictor

RANDOM = np.random.default_rng(0)


@pytest.mark.parametrize(
    ("count", "kind"), [(3, np.uint8), (15, np.uint8), (16, np.uint16), (150, np.uint16), (300, np.int32)]
)
def test_codes_hold_both_masks(count, kind):
    names = [f"class {row}" for row in range(count)]
    old = class_table([["background", *names[1:]]])
    new = class_table([["background", *names[:0:-1], "extra"]])
    classes = common_classes(old, new)
    codes = Codes(classes)
    rows = np.uint8 if count < 256 else np.int32
    was = RANDOM.integers(0, len(old), (17, 23)).astype(rows)
    now = RANDOM.integers(0, len(new), (17, 23)).astype(rows)
    both = codes.of(was, now)
    assert both.dtype == kind
    np.testing.assert_array_equal(codes.old(both), classes.old[was])
    np.testing.assert_array_equal(codes.new(both), classes.new[now])
    np.testing.assert_array_equal(codes.kinds(both), kind_table(classes)[classes.old[was], classes.new[now]])
    matrix = codes.matrix(both)
    expected = np.zeros_like(matrix)
    np.add.at(expected, (classes.old[was], classes.new[now]), 1)
    np.testing.assert_array_equal(matrix, expected)
    np.testing.assert_array_equal(codes.by_kind(matrix), np.bincount(codes.kinds(both).ravel(), minlength=7))


def test_a_pair_compares_names_not_rows(named):
    paint = {"dark": "background", "red": "ball", "yellow": "cone"}
    old = named(["background", "ball", "cone"], paint)
    same = named(["background", "road", "cone", "ball"], paint)
    images = list(RANDOM.integers(0, 256, (3, 24, 32, 3), dtype=np.uint8))
    layout = Layout(batch=2)
    pair = Pair(Predictor(old, layout), Predictor(same, layout))
    assert pair.layout.batch == 2
    found = pair.segment_all(images)
    assert len(found) == 3
    for one in found:
        assert not pair.codes.kinds(one.mask).any(), "other rows, same classes"
        assert len(np.unique(pair.codes.old(one.mask))) == 3
    other = named(["background", "road", "cone", "ball"], paint | {"yellow": "road"})
    pair = Pair(Predictor(old, layout), Predictor(other, layout))
    for image, one in zip(images, pair.segment_all(images), strict=True):
        yellow = (image[..., 0] > 127) & (image[..., 1] > 127)
        np.testing.assert_array_equal(pair.codes.kinds(one.mask), np.where(yellow, 3, 0))
