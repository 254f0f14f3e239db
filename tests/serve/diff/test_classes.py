from itertools import combinations

import pytest

from rcil.core.errors import ConfigError
from rcil.model.metadata import class_table
from rcil_serve.diff.classes import KINDS, common_classes, kind_classes, kind_table


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
