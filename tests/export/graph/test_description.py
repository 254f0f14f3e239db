import contextlib

import onnx
import pytest
from served import FIXED, write_model

from rcil.core.errors import CheckpointError
from rcil_export.graph.description import read_texts
from rcil_export.graph.onnx_file import load_document, texts_of


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    return write_model(tmp_path_factory.mktemp("texts") / "m.onnx", FIXED)


def test_it_reads_what_onnx_reads(path):
    assert read_texts(path) == texts_of(load_document(path)) and len(read_texts(path)) == 2


def test_texts_may_stand_anywhere_and_be_empty(tmp_path):
    document = onnx.ModelProto(ir_version=8)
    for key, value in (("", "ä"), ("key", ""), ("long", "x" * 100_000)):
        document.metadata_props.add(key=key, value=value)
    texts = document.SerializeToString()
    rest = onnx.ModelProto(producer_name="someone", graph=onnx.GraphProto(name="g")).SerializeToString()
    for data in (texts + rest, rest + texts):
        (tmp_path / "m.onnx").write_bytes(data)
        assert read_texts(tmp_path / "m.onnx") == {"": "ä", "key": "", "long": "x" * 100_000}


@pytest.mark.parametrize(
    "data",
    [b"no graph", b"\x08", b"\x08" + b"\xff" * 11, b"\x72\x7f", b"\x72\x03\x0a\x01\xff", b"\x00\x01", b"\x0b", b"\x7c"],
    ids=["text", "number cut off", "endless number", "too long", "not UTF-8", "field 0", "group", "group end"],
)
def test_damage_is_named(tmp_path, data):
    (tmp_path / "m.onnx").write_bytes(data)
    with pytest.raises(CheckpointError, match=r"m\.onnx is not an ONNX file, or damaged"):
        read_texts(tmp_path / "m.onnx")


def test_every_cut_is_either_whole_or_damaged(path, tmp_path):
    data, whole = path.read_bytes(), read_texts(path)
    cut = tmp_path / "cut.onnx"
    for length in range(0, len(data), 997):
        cut.write_bytes(data[:length])
        with contextlib.suppress(CheckpointError):
            assert read_texts(cut).items() <= whole.items()


def test_absent(tmp_path):
    with pytest.raises(CheckpointError, match="No such file"):
        read_texts(tmp_path / "absent.onnx")
