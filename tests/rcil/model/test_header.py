import json
import struct

import pytest

from rcil.core.errors import CheckpointError
from rcil.model.architecture import Architecture
from rcil.model.header import METADATA_KEY, read_header
from rcil.model.metadata import Metadata, class_table

TEXT = Metadata(architecture=Architecture(), classes=class_table([["background", "a"]])).model_dump_json()
TENSOR = '{"dtype": "F32", "shape": [1], "data_offsets": [0, 4]}'


def write(path, tensor=TENSOR, metadata=TEXT):
    header = f'{{"__metadata__": {json.dumps({METADATA_KEY: metadata})}, "w": {tensor}}}'.encode()
    path.write_bytes(struct.pack("<Q", len(header)) + header + bytes(4))
    return path


def test_a_header_that_is_right_is_read(tmp_path):
    assert read_header(write(tmp_path / "m.safetensors")).shapes == {"w": (1,)}


def test_more_blocks_than_tensors(tmp_path):
    described = json.loads(TEXT)
    described["architecture"]["blocks"] = [1, 1, 1, 1000]
    with pytest.raises(CheckpointError, match="1 tensors are too few for the network that it describes"):
        read_header(write(tmp_path / "m.safetensors", metadata=json.dumps(described)))


@pytest.mark.parametrize(
    "tensor",
    [
        TENSOR.replace("[1]", "[1e999]"),
        TENSOR.replace("[1]", "[Infinity]"),
        TENSOR.replace("[1]", "[NaN]"),
        TENSOR.replace("[0, 4]", "[-4, 0]"),
        TENSOR.replace("[0, 4]", "{}"),
        *("[]", "null", '"x"'),
    ],
)
def test_a_damaged_tensor_entry_is_named(tmp_path, tensor):
    with pytest.raises(CheckpointError, match=r"m\.safetensors is damaged: bad tensor entry"):
        read_header(write(tmp_path / "m.safetensors", tensor))


@pytest.mark.parametrize(
    ("old", "new", "place"),
    [
        ('"mean":[0.485', '"mean":[Infinity', r"mean\.0"),
        ('"mean":[0.485', '"mean":[1e308', r"mean\.0"),
        ('"std":[0.229', '"std":[0', r"std\.0"),
        ('"width":64', '"width":9000000000', r"architecture\.width"),
        ('"blocks":null', '"blocks":[1, 1, 1, 1000000000]', r"architecture\.blocks\.3"),
    ],
)
def test_a_network_that_cannot_be_is_refused(tmp_path, old, new, place):
    assert old in TEXT
    with pytest.raises(CheckpointError, match=f"damaged: {place}"):
        read_header(write(tmp_path / "m.safetensors", metadata=TEXT.replace(old, new)))
