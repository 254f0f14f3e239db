import importlib
import sys
from types import SimpleNamespace

import numpy as np
import pytest
from onnx_models import segmenter

from rcil.errors import MissingDependencyError, RcilError
from rcil_export.engine import gpu, run
from rcil_export.engine.build import build_engine
from rcil_export.engine.errors import EngineError, NoGpuError
from rcil_export.engine.flavour import flavour_of
from rcil_export.engine.options import EngineOptions
from rcil_export.engine.run import EngineRunner, check_image, polygraphy_runner
from rcil_export.shapes import parse_shape

trt = pytest.importorskip("tensorrt_rtx")
pytest.importorskip("polygraphy")
ERROR = trt.ILogger.Severity.ERROR
IMAGE = np.arange(32 * 48 * 3, dtype=np.uint8).reshape(1, 32, 48, 3)


@pytest.fixture
def engine(tmp_path):
    path = tmp_path / "model.engine"
    build_engine(segmenter(tmp_path / "model.onnx"), path, EngineOptions(gpus=("sm86",)))
    return path


class Runner:
    """Polygraphy's runner without a GPU: its outputs live in buffers that the next call overwrites."""

    made = ()
    fails = False

    def __init__(self, engine):
        self.engine = engine
        self.calls = []
        self.buffer = np.zeros((1, 32, 48), np.uint8)
        Runner.made = (*Runner.made, self)

    def activate(self):
        self.calls.append("activate")

    def deactivate(self):
        self.calls.append("deactivate")

    def infer(self, feed):
        if self.fails:
            polygraphy_exception = importlib.import_module("polygraphy.exception")
            raise polygraphy_exception.PolygraphyException("out of memory")
        self.buffer[:] = feed["image"][..., 0]
        return {"mask": self.buffer}


@pytest.fixture
def polygraphy(monkeypatch, set_gpus):
    """A GPU as far as Polygraphy and the runtime are asked; gives Polygraphy's settings."""
    set_gpus("sm86")
    runtime = SimpleNamespace(deserialize_cuda_engine=lambda plan: plan or None)
    monkeypatch.setattr(trt, "Runtime", lambda logger: runtime)
    assert polygraphy_runner(flavour_of(trt)).__name__ == "TrtRunner"
    monkeypatch.setattr("polygraphy.backend.trt.TrtRunner", Runner)
    monkeypatch.setattr(Runner, "made", ())
    return importlib.import_module("polygraphy.config")


def test_polygraphy_uses_the_flavour_of_the_engine(polygraphy):
    assert importlib.import_module("polygraphy.backend.trt.runner").trt.ComputeCapability is trt.ComputeCapability


def test_no_gpu_names_the_onnx_file_to_use(engine):
    with pytest.raises(NoGpuError) as caught, EngineRunner(engine):
        pass
    assert caught.value.message == f"{engine} needs an NVIDIA GPU with its driver, and there is none here"
    assert str(engine.with_name("model.onnx")) in caught.value.hint


def test_another_gpu(engine, set_gpus):
    set_gpus("sm89", "sm86")
    with pytest.raises(EngineError, match=r"built for sm86, and this GPU \(GPU sm89\) is sm89"), EngineRunner(engine):
        pass


def test_a_changed_engine_is_not_run(engine):
    engine.write_bytes(b"no plan")
    with pytest.raises(EngineError, match="is not the file"):
        EngineRunner(engine)


def test_outputs_are_copies_and_the_runner_is_closed(engine, polygraphy):
    with EngineRunner(engine) as runner:
        first = runner.run(IMAGE)
        second = runner.run(IMAGE[:, :, ::-1].copy())
    np.testing.assert_array_equal(first["mask"], IMAGE[..., 0])
    np.testing.assert_array_equal(second["mask"], IMAGE[:, :, ::-1, 0])
    (made,) = Runner.made
    assert made.engine == engine.read_bytes()
    assert made.calls == ["activate", "deactivate"]


def test_a_failure_on_the_gpu(engine, polygraphy, monkeypatch):
    monkeypatch.setattr(Runner, "fails", True)
    with EngineRunner(engine) as runner, pytest.raises(EngineError, match="failed on the GPU: out of memory"):
        runner.run(IMAGE)


def test_an_engine_that_does_not_load(engine, polygraphy, monkeypatch):
    monkeypatch.setattr(
        trt,
        "Runtime",
        lambda logger: SimpleNamespace(deserialize_cuda_engine=lambda plan: logger.log(ERROR, "too old")),
    )
    with pytest.raises(EngineError, match=r"cannot load .*model\.engine: too old"), EngineRunner(engine):
        pass


def test_one_flavour_in_a_process(engine, polygraphy, monkeypatch):
    monkeypatch.setattr(polygraphy, "USE_TENSORRT_RTX", False)
    with pytest.raises(EngineError, match="one process runs engines of one TensorRT flavour"), EngineRunner(engine):
        pass


def test_polygraphy_is_missing(engine, set_gpus, monkeypatch):
    set_gpus("sm86")
    monkeypatch.setitem(sys.modules, "polygraphy.config", None)
    with (
        pytest.raises(MissingDependencyError, match=r"needs the package polygraphy.*\n.*rcil\[rtx\]"),
        EngineRunner(engine),
    ):
        pass


@pytest.mark.parametrize(
    "image",
    [IMAGE.astype(np.float32), IMAGE[:, :31], IMAGE[0], IMAGE.transpose(0, 3, 1, 2)],
    ids=lambda i: str(i.shape),
)
def test_the_wrong_image(engine, image):
    sidecar = EngineRunner(engine).sidecar
    check_image(sidecar, IMAGE)
    with pytest.raises(RcilError, match=r"takes 'image' as uint8 \[1, 32, 48, 3\], not "):
        check_image(sidecar, image)


def test_open_sizes_have_limits(tmp_path):
    source = segmenter(tmp_path / "model.onnx", dynamic=True)
    profile = parse_shape(None, "32x32:32x48:64x96", "1:1:2")
    sidecar = build_engine(source, tmp_path / "model.engine", EngineOptions(gpus=("sm86",), profile=profile))
    check_image(sidecar, np.zeros((2, 64, 96, 3), np.uint8))
    with pytest.raises(RcilError, match=r"as uint8 \[1\.\.2, 32\.\.64, 32\.\.96, 3\], not uint8 \[1, 64, 97, 3\]"):
        check_image(sidecar, np.zeros((1, 64, 97, 3), np.uint8))


@pytest.mark.skipif(not gpu.find_gpus(), reason="needs an NVIDIA GPU")
def test_on_a_gpu_it_agrees_with_onnx_runtime(tmp_path, monkeypatch):
    runtime = pytest.importorskip("onnxruntime")
    real = gpu.find_gpus()
    monkeypatch.setattr(run, "find_gpus", lambda: real)
    source = segmenter(tmp_path / "model.onnx")
    target = tmp_path / "model.engine"
    build_engine(source, target, EngineOptions(flavour="rtx", gpus=(real[0].capability,)))
    expected = runtime.InferenceSession(source, providers=["CPUExecutionProvider"]).run(None, {"image": IMAGE})
    with EngineRunner(target) as runner:
        found = runner.run(IMAGE)
    assert (found["mask"] == expected[0]).mean() > 0.999
    np.testing.assert_allclose(found["confidence"], expected[1], atol=1e-4)
