from itertools import combinations

import numpy as np
import pytest

from rcil.core.errors import ConfigError
from rcil.model.metadata import class_table
from rcil_serve.diff.transitions import KINDS, Codes, Pair, common_classes, kind_classes, kind_table
from rcil_serve.runtime.predictor import Layout, Predictor


def test_classes_are_matched_by_name(yard):
    found = yard.classes
    assert found.names == ["background", "cone", "road", "ball", "sign", "drum"]
    assert [found.names[row] for row in found.old] == [c.name for c in yard.old]
    assert [found.names[row] for row in found.new] == [c.name for c in yard.new]
    assert [found.names[row] for row in found.added] == ["road", "sign"]
    assert [found.names[row] for row in found.removed] == ["drum"]


def test_every_class_has_its_own_colour(yard):
    colours = [c.colour for c in yard.classes.table]
    assert colours[:5] == [c.colour for c in yard.new], "those of the new model stay"
    assert yard.old[2].colour == yard.new[2].colour, "drum and road would look alike"
    assert len(set(colours)) == 6


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        (["background", "a", "b"], ["background", "c"], "share no class but background: the old one knows a, b"),
        (["background", "a"], ["background"], "the new one nothing else"),
        (["background", *map(str, range(20))], ["background", "c"], "7 and 12 more"),
        (["background", "a"], ["floor", "a"], "backgrounds differ: 'background' in the old model, 'floor' in the new"),
    ],
)
def test_models_that_cannot_be_compared(old, new, message):
    with pytest.raises(ConfigError, match=message):
        common_classes(class_table([old]), class_table([new]))


def test_every_transition_is_of_the_kind_that_its_words_say(yard):
    table, names = kind_table(yard.classes), yard.classes.names
    expected = {
        "background": {
            "background": "same",
            "cone": "appeared",
            "ball": "appeared",
            "road": "learned",
            "sign": "learned",
        },
        "ball": {"background": "forgotten", "cone": "swapped", "ball": "same", "road": "taken", "sign": "taken"},
        "cone": {"background": "forgotten", "cone": "same", "ball": "swapped", "road": "taken", "sign": "taken"},
        "drum": dict.fromkeys(["background", "cone", "ball", "road", "sign"], "lost"),
    }
    for old, row in expected.items():
        found = {new: KINDS[table[names.index(old), names.index(new)]].name for new in row}
        assert found == row


def test_colours_of_kinds_are_far_apart():
    for one, other in combinations(KINDS, 2):
        assert sum(abs(a - b) for a, b in zip(one.colour, other.colour, strict=True)) > 60
    assert [c.name for c in kind_classes()] == [kind.name for kind in KINDS]
    assert KINDS[1].hex == "#d55e00"


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
