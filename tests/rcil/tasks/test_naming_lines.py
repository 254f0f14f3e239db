import pytest

from rcil.core.errors import ConfigError
from rcil.tasks.load import naming_lines

TASK = "name: x  # no 'buildng'\nprotocol:\n  steps: [[road-buildng, road], [buildng]]\n  split: buildng\n"


@pytest.mark.parametrize(
    ("message", "expected"),
    [
        ("the data has no class 'buildng'", "{path}, line 3: the data has no class 'buildng'"),
        ("'road' and 'x' are no such thing", "{path}, line 3: 'road' and 'x' are no such thing"),
        ("no class 'cow'", "no class 'cow'"),
        ("{path}, line 9: 'road'", "{path}, line 9: 'road'"),
    ],
)
def test_the_line_of_a_quoted_word(tmp_path, message, expected):
    path = tmp_path / "task.yaml"
    path.write_text(TASK)
    with pytest.raises(ConfigError) as caught, naming_lines(path):
        raise ConfigError(message.format(path=path), "Did you mean 'building'?")
    assert (caught.value.message, caught.value.hint) == (expected.format(path=path), "Did you mean 'building'?")


def test_a_preset_has_no_lines(tmp_path):
    with pytest.raises(ConfigError, match=r"^no class 'road'"), naming_lines(tmp_path / "voc-15-1"):
        raise ConfigError("no class 'road'", "")
