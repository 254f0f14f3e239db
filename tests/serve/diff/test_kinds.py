from itertools import combinations

from rcil_serve.diff.kinds import KINDS, kind_classes, kind_table


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
