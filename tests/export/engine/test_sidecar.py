import json
import subprocess
import sys

import pytest
from pydantic import ValidationError

from rcil.core.errors import CheckpointError
from rcil.core.files import sha256_of
from rcil_export.engine.errors import EngineError
from rcil_export.engine.sidecar import (
    EngineSidecar,
    TensorInfo,
    check_installed,
    check_unchanged,
    describe_engine,
    read_sidecar,
    sidecar_path,
)
from rcil_export.graph.shapes import parse_shape

IMAGE = {"name": "image", "dtype": "uint8", "shape": [1, 4, 6, 3]}
trt = pytest.importorskip("tensorrt_rtx")


def profile_of(size):
    return parse_shape(size, None).model_dump()


@pytest.fixture
def engine(tmp_path):
    path = tmp_path / "model.engine"
    path.write_bytes(b"plan")
    write(path)
    return path


def write(path, **changes):
    fields = {
        "engine_sha256": sha256_of(path),
        "onnx_sha256": "0" * 64,
        "onnx_file": "model.onnx",
        "flavour": "rtx",
        "version": trt.__version__,
        "gpus": ("sm86",),
        "precision": "fp16",
        "conv_layers": {"fp32": 1, "fp16": 9},
        "inputs": (TensorInfo(name="image", dtype="uint8", shape=(1, 4, 6, 3)),),
        "outputs": (TensorInfo(name="mask", dtype="uint8", shape=(1, 4, 6)),),
        "profile": None,
        "metadata": {},
    }
    sidecar = EngineSidecar.model_validate(fields | changes)
    sidecar_path(path).write_text(sidecar.model_dump_json())
    return sidecar


def test_an_engine_as_it_was_built(engine):
    assert sidecar_path(engine).name == "model.engine.json"
    assert check_unchanged(engine) == read_sidecar(engine) == write(engine)
    assert check_installed(engine, read_sidecar(engine)).name == "rtx"


def test_the_sidecar_is_missing(engine):
    sidecar_path(engine).unlink()
    with pytest.raises(CheckpointError, match=r"cannot read .*model\.engine\.json: No such file(.|\n)*copy both"):
        check_unchanged(engine)


def test_the_engine_is_missing(engine):
    engine.unlink()
    with pytest.raises(CheckpointError, match=r"cannot read .*model\.engine: No such file"):
        check_unchanged(engine)


def test_the_engine_was_changed(engine):
    engine.write_bytes(b"plam")
    with pytest.raises(EngineError, match=r"is not the file that model\.engine\.json describes: its sha256 is "):
        check_unchanged(engine)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"format_version": 2}, "format_version: Input should be 1"),
        ({"engine_sha256": "abc"}, "engine_sha256: String should match"),
        ({"surprise": 1}, "surprise: Extra inputs"),
        ({"flavour": "vanilla"}, "flavour: Input should be 'rtx' or 'classic'"),
        ({"onnx_file": "../model.onnx"}, "onnx_file: String should match"),
        ({"onnx_file": "C:\\\\model.onnx"}, "onnx_file: String should match"),
        ({"onnx_file": ".."}, "onnx_file: String should match"),
        ({"onnx_file": ""}, "onnx_file: String should match"),
        ({"inputs": []}, "inputs: Tuple should have at least 1 item"),
        ({"inputs": [IMAGE | {"shape": [4, 6]}]}, r"Value error, inputs: \[4, 6\] is not a batch of images"),
        ({"inputs": [IMAGE | {"shape": [1, 0, 6, 3]}]}, r"inputs\.0\.shape\.1: Value error, a side of 0"),
        ({"inputs": [IMAGE | {"shape": [-1, 4, 6, 3]}]}, r"Value error, the profile is missing, and the input \[\?"),
        ({"profile": profile_of("4x6")}, r"Value error, the profile is 1 x 4 x 6, and the input \[1, 4"),
        (
            {"inputs": [IMAGE | {"shape": [-1, 4, 6, 3]}], "profile": profile_of("8x6")},
            r"Value error, the profile 1 x 8 x 6 does not fit the input \[\?, 4, 6, 3\]",
        ),
    ],
)
def test_a_sidecar_that_is_none_of_ours(engine, change, message):
    path = sidecar_path(engine)
    path.write_text(json.dumps(json.loads(path.read_text()) | change))
    with pytest.raises(CheckpointError, match=f"does not describe an engine: {message}"):
        read_sidecar(engine)


def test_a_sidecar_that_is_not_json(engine):
    sidecar_path(engine).write_bytes(b"\xff\x00")
    with pytest.raises(CheckpointError, match="does not describe an engine: Invalid JSON"):
        read_sidecar(engine)


def test_another_version_of_tensorrt(engine):
    write(engine, version="1.2.3")
    with pytest.raises(EngineError) as caught:
        check_installed(engine, read_sidecar(engine))
    assert f"was built with TensorRT-RTX 1.2.3, but TensorRT-RTX {trt.__version__} is installed" in caught.value.message
    assert "build it again from model.onnx" in caught.value.hint
    check_unchanged(engine)


def test_another_flavour(engine):
    write(engine, flavour="classic", version="10.3.0")
    with pytest.raises(
        EngineError, match=r"needs TensorRT 10\.3\.0, but TensorRT-RTX .* is installed\n.*rcil\[tensorrt\]"
    ):
        check_installed(engine, read_sidecar(engine))


def test_no_tensorrt(engine, no_rtx):
    with pytest.raises(EngineError, match=r"but no TensorRT is installed\n.*rcil\[rtx\]"):
        check_installed(engine, read_sidecar(engine))


def test_a_sidecar_does_not_change(engine):
    with pytest.raises(ValidationError, match="frozen"):
        read_sidecar(engine).precision = "fp32"


def test_reading_needs_neither_torch_nor_tensorrt_nor_onnx(engine):
    program = (
        "import sys, pathlib; from rcil_export.engine.sidecar import describe_engine;"
        "describe_engine(pathlib.Path(sys.argv[1]));"
        "heavy = ('torch', 'tensorrt', 'tensorrt_rtx', 'onnx', 'cuda.bindings');"
        "print([name for name in heavy if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", program, str(engine)], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_the_description_is_json_and_has_the_size(built, no_rtx):
    document = describe_engine(built)
    assert json.loads(json.dumps(document)) == document
    assert document["engine"] == "model.engine"
    assert document["bytes"] == len(built.read_bytes())
    assert document["gpus"] == ["sm86"]
    assert document["inputs"] == [{"name": "image", "dtype": "uint8", "shape": [1, 32, 48, 3]}]


def test_a_changed_engine_is_not_described(built):
    built.write_bytes(built.read_bytes()[:-1])
    with pytest.raises(EngineError, match="is not the file"):
        describe_engine(built)
