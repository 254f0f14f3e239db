import pytest

from rcil.core.errors import ConfigError
from rcil.model.class_match import match_classes
from rcil.model.metadata import class_table


def test_names_decide_not_positions():
    old = class_table([["background", "car", "tree", "sign"]])
    new = class_table([["background", "tree", "car"], ["forklift"]])
    found = match_classes(old, new)
    assert found.counts == (4, 4)
    assert found.names == ("background", "car", "tree")
    assert found.old_rows.tolist() == [0, 1, 2] and found.new_rows.tolist() == [0, 2, 1]
    assert found.gone == ("sign",) and found.gone_rows.tolist() == [3]
    assert found.added == ("forklift",) and found.added_rows.tolist() == [3]


def test_models_without_a_common_class_are_refused():
    with pytest.raises(ConfigError, match="no class in common: one has a, b, the other c"):
        match_classes(class_table([["a", "b"]]), class_table([["c"]]))
