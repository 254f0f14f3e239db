import subprocess
import sys

import onnx
import pytest
from exports import described

from rcil.core.errors import CheckpointError, ConfigError
from rcil.nn import fold
from rcil_export.graph.export import to_onnx
from rcil_export.graph.interface import Interface, check_opset, parse_outputs
from rcil_export.graph.onnx_file import read_onnx, write_onnx
from rcil_export.graph.shapes import InputShape, parse_shape


@pytest.fixture
def exported(tmp_path):
    model, metadata = described()
    interface = Interface(shape=parse_shape(None, "32x32:32x64:64x64"), outputs=("logits", "mask"), opset=20)
    path = tmp_path / "model.onnx"
    write_onnx(path, to_onnx(fold(model)[0], metadata, interface))
    return path, metadata, interface


def test_a_file_says_what_it_is(exported):
    path, metadata, interface = exported
    read = read_onnx(path)
    assert (read.metadata, read.interface) == (metadata, interface)
    assert read.interface.outputs == ("mask", "logits")


def test_reading_needs_no_torch(exported):
    lines = [
        "import sys",
        "from pathlib import Path",
        "from rcil_export.graph.onnx_file import read_onnx",
        f"read_onnx(Path({str(exported[0])!r}))",
        "assert 'torch' not in sys.modules",
    ]
    subprocess.run([sys.executable, "-c", "\n".join(lines)], check=True)


def test_foreign_and_damaged_files_are_named(exported, tmp_path):
    path = exported[0]
    document = onnx.load(path)
    del document.metadata_props[:]
    onnx.save(document, tmp_path / "foreign.onnx")
    (tmp_path / "text.onnx").write_text("not a graph at all")
    (tmp_path / "empty.onnx").write_bytes(b"")
    (tmp_path / "cut.onnx").write_bytes(path.read_bytes()[:1000])
    document = onnx.load(path)
    document.graph.initializer[0].data_location = onnx.TensorProto.EXTERNAL
    document.graph.initializer[0].external_data.add(key="location", value="../elsewhere")
    (tmp_path / "outside.onnx").write_bytes(document.SerializeToString())
    (tmp_path / "bytes.onnx").write_bytes(path.read_bytes().replace(b"Conv", b"\xff\xfe\xff\xfe"))
    for name, match in (
        ("outside.onnx", "outside.onnx is not an ONNX file, or damaged"),
        ("bytes.onnx", "bytes.onnx is not an ONNX file, or damaged"),
        ("foreign.onnx", "no description by rcil-export"),
        ("text.onnx", "not an ONNX file"),
        ("empty.onnx", "no description by rcil-export|not an ONNX"),
        ("cut.onnx", "not an ONNX file"),
        ("absent.onnx", "cannot read"),
    ):
        with pytest.raises(CheckpointError, match=match):
            read_onnx(tmp_path / name)


@pytest.mark.parametrize("name", ["model.json", "model.pbtxt", "model.onnxtxt", "model.textproto"])
def test_the_name_does_not_choose_another_format(exported, tmp_path, name):
    path = tmp_path / name
    path.write_bytes(exported[0].read_bytes())
    assert read_onnx(path).document == read_onnx(exported[0]).document
    path.write_text('{"irVersion": 8')
    with pytest.raises(CheckpointError, match=f"{name} is not an ONNX file"):
        read_onnx(path)


def test_a_damaged_description_is_an_error(exported):
    path = exported[0]
    document = onnx.load(path)
    onnx.helper.set_model_props(document, {"rcil": "{}", "rcil.interface": "{}"})
    onnx.save(document, path)
    with pytest.raises(CheckpointError, match="description is damaged"):
        read_onnx(path)


def test_options_are_checked():
    assert parse_outputs("logits, mask") == ("mask", "logits")
    with pytest.raises(ConfigError, match="unknown output 'maks'") as caught:
        parse_outputs("maks")
    assert "mask" in caught.value.hint
    with pytest.raises(ConfigError, match="no output is named"):
        parse_outputs(",")
    assert check_opset(20) == 20
    with pytest.raises(ConfigError, match="opset 17"):
        check_opset(17)
    assert Interface(shape=InputShape.of(8, 8), outputs=("logits", "mask")).outputs == ("mask", "logits")
