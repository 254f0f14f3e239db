import contextlib
import errno
import os
import signal
import subprocess
import sys
from pathlib import Path

import onnx as onnx_package
import pytest
from onnx_models import segmenter

from rcil.core.errors import CheckpointError, ConfigError, RcilError
from rcil.core.files import sha256_of
from rcil_export.engine import build, flavour
from rcil_export.engine.build import EngineOptions, build_engine
from rcil_export.engine.callbacks import logger_of
from rcil_export.engine.errors import EngineError
from rcil_export.engine.flavour import flavour_of, known_gpus
from rcil_export.engine.sidecar import TensorInfo, read_sidecar, sidecar_path

trt = pytest.importorskip("tensorrt_rtx")
ONE = EngineOptions(gpus=("sm86",))


@pytest.fixture
def source(tmp_path):
    return segmenter(tmp_path / "model.onnx", metadata={"rcil.b": "two", "rcil.a": "one"})


@pytest.fixture
def target(tmp_path):
    return tmp_path / "out" / "model.engine"


def files(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir()) if folder.exists() else []


@pytest.mark.parametrize("precision", ["fp32", "fp16", "bf16", "int8"])
def test_every_precision_is_built_and_described(tmp_path, target, precision):
    source = segmenter(tmp_path / "model.onnx", precision=precision)
    built = build_engine(source, target, EngineOptions(precision=precision, gpus=("sm120", "sm86")))
    assert built == read_sidecar(target)
    assert (built.flavour, built.version) == ("rtx", trt.__version__)
    assert (built.precision, built.conv_layers) == (precision, {precision: 2})
    assert built.gpus == ("sm86", "sm120")
    assert built.engine_sha256 == sha256_of(target)
    assert (built.onnx_file, built.onnx_sha256) == ("model.onnx", sha256_of(source))
    assert built.inputs == (TensorInfo(name="image", dtype="uint8", shape=(1, 32, 48, 3)),)
    assert [(tensor.name, tensor.dtype, tensor.shape) for tensor in built.outputs] == [
        ("mask", "uint8", (1, 32, 48)),
        ("confidence", "float32", (1, 32, 48)),
    ]
    assert files(target.parent) == ["model.engine", "model.engine.json"]


def test_the_description_of_the_onnx_file_travels_along(source, target):
    assert build_engine(source, target, ONE).metadata == {"rcil.a": "one", "rcil.b": "two"}


def test_the_same_inputs_give_the_same_bytes_in_another_process_too(source, target):
    build_engine(source, target, ONE)
    first = target.read_bytes(), sidecar_path(target).read_bytes()
    build_engine(source, target, ONE)
    assert (target.read_bytes(), sidecar_path(target).read_bytes()) == first
    program = (
        "import sys, pathlib; from rcil_export.engine.build import build_engine;"
        "from rcil_export.engine.build import EngineOptions;"
        "build_engine(*map(pathlib.Path, sys.argv[1:]), EngineOptions(gpus=('sm86',), flavour='rtx'))"
    )
    subprocess.run([sys.executable, "-c", program, str(source), str(target)], check=True)
    assert (target.read_bytes(), sidecar_path(target).read_bytes()) == first


def test_another_gpu_or_graph_gives_another_engine(tmp_path, source, target):
    one = build_engine(source, target, ONE)
    assert build_engine(source, target, EngineOptions(gpus=("sm89",))).engine_sha256 != one.engine_sha256
    other = segmenter(tmp_path / "other.onnx", auto_pad=True)
    assert build_engine(other, target, ONE).engine_sha256 != one.engine_sha256


def test_by_default_it_is_built_for_all_gpus_from_ampere_on(source, target):
    assert build_engine(source, target, EngineOptions()).gpus == known_gpus(flavour_of(trt))[1:]


@pytest.mark.parametrize("opset", [18, 20, 23])
def test_opsets(tmp_path, target, opset):
    build_engine(segmenter(tmp_path / "model.onnx", opset=opset), target, ONE)


def test_classic_goes_the_same_way(source, target, classic, set_gpus):
    set_gpus("sm86")
    built = build_engine(source, target, EngineOptions(flavour="classic", timing_cache=False))
    assert (built.flavour, built.version, built.gpus) == ("classic", "10.99.0", ("sm86",))
    assert built.conv_layers == {"fp32": 2}
    assert built.engine_sha256 == sha256_of(target)


@pytest.mark.parametrize(("flavour", "kept"), [("classic", True), ("rtx", False)])
def test_only_classic_keeps_timings(source, target, classic, set_gpus, monkeypatch, flavour, kept):
    set_gpus("sm86")
    paths = []

    @contextlib.contextmanager
    def timings(config, path):
        paths.append(path)
        yield

    monkeypatch.setattr(build, "timings_kept", timings)
    build_engine(source, target, EngineOptions(flavour=flavour, gpus=("sm86",)))
    assert [path is not None for path in paths] == [kept]


def test_an_unsupported_node_is_named(tmp_path, target):
    source = segmenter(tmp_path / "model.onnx", unsupported=True)
    with pytest.raises(EngineError, match=r"node \d+ \(determinant_Det, Det\): UNSUPPORTED_NODE"):
        build_engine(source, target, ONE)
    assert files(target.parent) == []


def test_the_precision_of_the_file_is_not_the_one_asked_for(source, target):
    with pytest.raises(ConfigError, match=r"in fp16 was asked for, but the convs of .*model\.onnx are 2 of 2 in fp32"):
        build_engine(source, target, EngineOptions(precision="fp16"))
    assert files(target.parent) == []


def test_a_logged_error_is_a_failure_whatever_tensorrt_returns(source, target):
    logged = []

    def log_once(*event):
        if not logged:
            logged.append(event)
            logger_of(trt).log(trt.ILogger.Severity.ERROR, "something smells")

    with pytest.raises(EngineError, match="could not build the engine: something smells"):
        build_engine(source, target, ONE, log_once)
    assert files(target.parent) == []


def test_what_tensorrt_refuses_is_passed_on(tmp_path, target, monkeypatch):
    monkeypatch.setattr(flavour, "FIRST_WITH", {})
    source = segmenter(tmp_path / "model.onnx", precision="bf16")
    with pytest.raises(EngineError, match="Cannot compile for target"):
        build_engine(source, target, EngineOptions(precision="bf16", gpus=("sm75",)))
    assert files(target.parent) == []


def test_progress_reaches_the_end(source, target):
    events = []
    build_engine(source, target, ONE, lambda *event: events.append(event))
    outer, start, steps = events[0]
    assert start == 0
    assert [done for name, done, _ in events if name == outer] == list(range(steps + 1))
    assert all(0 <= done <= total for _, done, total in events)
    assert len({name for name, *_ in events}) > 3


def test_ctrl_c_leaves_what_was_there(source, target):
    build_engine(source, target, ONE)
    before = target.read_bytes()
    calls = []

    def interrupt(*event):
        calls.append(event)
        if len(calls) == 5:
            os.kill(os.getpid(), signal.SIGINT)

    with pytest.raises(KeyboardInterrupt):
        build_engine(source, target, EngineOptions(gpus=("sm89",)), interrupt)
    assert len(calls) < 10
    assert target.read_bytes() == before
    assert files(target.parent) == ["model.engine", "model.engine.json"]
    assert build_engine(source, target, ONE).engine_sha256 == sha256_of(target)


def test_an_error_of_the_listener_is_raised_after_the_build_was_cancelled(source, target):
    def fail(*event):
        raise ValueError("broken display")

    with pytest.raises(ValueError, match="broken display"):
        build_engine(source, target, ONE, fail)
    assert files(target.parent) == []


def test_a_full_disk(source, target, monkeypatch):
    def full(self, data):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(Path, "write_bytes", full)
    with pytest.raises(RcilError, match=r"cannot write .*model\.engine.*: No space left on device"):
        build_engine(source, target, ONE)
    assert files(target.parent) == []


def test_a_folder_that_cannot_be_made_is_seen_before_the_build(source, tmp_path):
    (tmp_path / "file").write_text("")
    events = []
    with pytest.raises(RcilError, match="cannot write"):
        build_engine(source, tmp_path / "file" / "model.engine", ONE, lambda *event: events.append(event))
    assert events == []


def test_the_source_is_not_overwritten(source):
    before = source.read_bytes()
    with pytest.raises(ConfigError, match="would replace the ONNX file"):
        build_engine(source, source.parent / "." / source.name, ONE)
    assert source.read_bytes() == before


def test_no_such_file(tmp_path, target):
    with pytest.raises(CheckpointError, match=r"cannot read .*none\.onnx: No such file"):
        build_engine(tmp_path / "none.onnx", target, ONE)


def test_not_an_onnx_file(tmp_path, target):
    path = tmp_path / "model.onnx"
    path.write_bytes(b"\xff\xfe not a graph")
    with pytest.raises(CheckpointError, match="is not an ONNX file"):
        build_engine(path, target, ONE)


def test_a_graph_with_another_input(source, target):
    document = onnx_package.load(source)
    document.graph.input[0].name = "picture"
    for node in document.graph.node:
        for index, name in enumerate(node.input):
            node.input[index] = "picture" if name == "image" else name
    onnx_package.save(document, source)
    with pytest.raises(EngineError, match=r"does not take one 'image' .* its inputs: picture \[1, 32, 48, 3\]"):
        build_engine(source, target, ONE)


def test_fp32_is_not_rounded_to_tf32(source, target, monkeypatch):
    configs = []
    real = trt.Builder.build_serialized_network

    def keep(builder, network, config):
        configs.append(config.get_flag(trt.BuilderFlag.TF32))
        return real(builder, network, config)

    monkeypatch.setattr(trt.Builder, "build_serialized_network", keep)
    build_engine(source, target, ONE)
    assert configs == [False]
