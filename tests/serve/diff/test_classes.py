import pytest

from rcil.core.errors import ConfigError
from rcil.model.metadata import class_table
from rcil_serve.diff.classes import common_classes


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
        (["background", "a"], ["floor", "a"], "background of the old model is 'background', of the new one 'floor'"),
    ],
)
def test_models_that_cannot_be_compared(old, new, message):
    with pytest.raises(ConfigError, match=message):
        common_classes(class_table([old]), class_table([new]))
