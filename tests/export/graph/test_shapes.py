import pytest
from pydantic import ValidationError

from rcil.core.errors import ConfigError
from rcil_export.graph.shapes import Extent, InputShape, parse_shape, parse_size


def test_a_size_is_height_by_width():
    assert parse_size("512x1024") == (512, 1024)


@pytest.mark.parametrize("text", ["512", "512x", "0x3", "-1x4", "512*512", "999999x1", "a x b", ""])
def test_what_is_not_a_size_is_refused(text):
    with pytest.raises(ConfigError, match="is not a size"):
        parse_size(text)


def test_options_become_a_shape():
    assert parse_shape(None, None) == InputShape.of(512, 512)
    assert parse_shape("64x96", None, "4") == InputShape.of(64, 96, 4)
    ranged = parse_shape(None, "256x128:512x1024:1024x2048", "1:4:8")
    assert ranged.batch == Extent(low=1, usual=4, high=8)
    assert ranged.usual == (4, 512, 1024)
    assert not ranged.static
    assert ranged.takes(256, 2048) and not ranged.takes(255, 2048)
    assert str(ranged) == "1..8 x 256..1024 x 128..2048"


def test_lengths_that_onnx_cannot_describe_are_refused():
    assert Extent(low=1, usual=1, high=2**63 - 1)
    with pytest.raises(ValidationError, match="high"):
        Extent(low=1, usual=1, high=2**63)


@pytest.mark.parametrize(
    ("size", "dynamic", "batch", "match"),
    [
        ("4x4", "4x4:4x4:4x4", "1", "exclude"),
        (None, "4x4:8x8", "1", "range of sizes"),
        (None, "8x8:4x4:16x16", "1", "not in order"),
        (None, None, "0", "not a batch"),
        (None, None, "1:2", "not a batch"),
        (None, None, "4:2:8", "not in order"),
    ],
)
def test_impossible_shapes_are_refused(size, dynamic, batch, match):
    with pytest.raises(ConfigError, match=match):
        parse_shape(size, dynamic, batch)
