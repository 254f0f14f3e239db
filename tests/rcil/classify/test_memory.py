import pytest

from rcil.classify.memory import read_memory
from rcil.core.errors import TrainingError


def test_what_was_noted_comes_back(tmp_path):
    (tmp_path / "m.json").write_text('{"zero": [1, 5], "one": []}')
    assert read_memory(tmp_path / "m.json", images=6) == {"zero": [1, 5], "one": []}


@pytest.mark.parametrize("text", [None, "", "[" * 5000, "[1]", '{"a": 1}', '{"a": [-1]}', '{"a": [6]}', '{"a": [0.5]}'])
def test_a_damaged_memory_is_named(tmp_path, text):
    if text is not None:
        (tmp_path / "m.json").write_text(text)
    with pytest.raises(TrainingError, match=r"m\.json is not a valid list of images\nDelete it"):
        read_memory(tmp_path / "m.json", images=6)
