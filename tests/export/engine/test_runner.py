from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace

import numpy as np
import pytest
from fake_gpu import FakeCuda, fake_engine
from onnx_models import segmenter

from rcil.core.errors import ConfigError, RcilError
from rcil_export.engine import gpu
from rcil_export.engine import runner as run
from rcil_export.engine.build import EngineOptions, build_engine
from rcil_export.engine.caches import runtime_cache_path
from rcil_export.engine.errors import EngineError, NoGpuError
from rcil_export.engine.runner import EngineRunner, check_image
from rcil_export.graph.shapes import parse_shape

trt = pytest.importorskip("tensorrt_rtx")
ERROR = trt.ILogger.Severity.ERROR
IMAGE = np.arange(32 * 48 * 3, dtype=np.uint8).reshape(1, 32, 48, 3)


@pytest.fixture
def engine(built):
    return built


@pytest.fixture
def gpu_of(monkeypatch, set_gpus):
    """Call it to have a GPU: gives the fake CUDA and the fake engine that TensorRT loads."""

    def make(**options):
        set_gpus("sm86")
        cuda = FakeCuda()
        loaded = fake_engine(cuda, **options)
        runtime = SimpleNamespace(deserialize_cuda_engine=lambda plan: loaded)
        monkeypatch.setattr(trt, "Runtime", lambda logger: runtime)
        return cuda, loaded

    return make


def test_no_gpu_names_the_onnx_file_to_use(engine):
    with pytest.raises(NoGpuError) as caught, EngineRunner(engine):
        pass
    assert caught.value.message == f"{engine} needs an NVIDIA GPU with its driver, and this machine has none"
    assert str(engine.with_name("model.onnx")) in caught.value.hint


def test_another_gpu(engine, set_gpus):
    set_gpus("sm89", "sm86")
    with pytest.raises(EngineError, match=r"built for sm86, and this GPU \(GPU sm89\) is sm89"), EngineRunner(engine):
        pass


def test_a_changed_engine_is_not_run(engine):
    engine.write_bytes(b"no plan")
    with pytest.raises(EngineError, match="is not the file"):
        EngineRunner(engine)


def test_a_second_gpu_is_asked_for_by_its_number(engine, set_gpus):
    set_gpus("sm89", "sm86")
    cudas = []

    def open_cuda(device):
        cudas.append(device)
        raise EngineError("stop here", "")

    with pytest.raises(EngineError, match="stop here"), EngineRunner(engine, 1, open_cuda):
        pass
    assert cudas == [1]
    with pytest.raises(ConfigError, match="no GPU number 2, only 2"), EngineRunner(engine, 2):
        pass


def test_outputs_are_copies_and_everything_is_given_back(engine, gpu_of):
    cuda, loaded = gpu_of()
    with EngineRunner(engine, open_cuda=lambda device: cuda) as runner:
        first = runner.run(IMAGE)
        second = runner.run(IMAGE[:, :, ::-1].copy())
    np.testing.assert_array_equal(first["mask"], IMAGE[..., 0])
    np.testing.assert_array_equal(second["mask"], IMAGE[:, :, ::-1, 0])
    assert len(loaded.made.contexts) == 1, "one thread needs one frame in flight"
    assert not cuda.blocks and not cuda.open and cuda.calls[-1] == "close"


def test_rtx_keeps_its_kernels_and_captures_graphs(engine, gpu_of):
    cuda, loaded = gpu_of()
    with EngineRunner(engine, open_cuda=lambda device: cuda) as runner:
        runner.run(IMAGE)
        assert runtime_cache_path(engine).read_bytes() == b"kernels", "a process that is killed leaves them too"
    (config,) = loaded.made.configs
    assert config.cuda_graph_strategy == trt.CudaGraphStrategy.WHOLE_GRAPH_CAPTURE
    assert loaded.made.arguments == [(config,)]
    cuda, loaded = gpu_of()
    with EngineRunner(engine, open_cuda=lambda device: cuda):
        pass
    assert loaded.made.configs[0].cache.loaded == b"kernels"


def test_several_threads_at_once(engine, gpu_of):
    cuda, loaded = gpu_of()
    images = [np.roll(IMAGE, shift) for shift in range(24)]
    with EngineRunner(engine, open_cuda=lambda device: cuda) as runner, ThreadPoolExecutor(4) as threads:
        found = list(threads.map(runner.run, images))
    for image, outputs in zip(images, found, strict=True):
        np.testing.assert_array_equal(outputs["mask"], image[..., 0])
    assert len(loaded.made.contexts) <= 2
    assert not cuda.blocks and not cuda.open


def test_a_failure_on_the_gpu(engine, gpu_of):
    cuda, _ = gpu_of()
    with EngineRunner(engine, open_cuda=lambda device: cuda) as runner:
        cuda.fails = ("copy_in",)
        with pytest.raises(EngineError, match=r"model\.engine failed on the GPU: the GPU refused copy_in"):
            runner.run(IMAGE)
        cuda.fails = ()
        np.testing.assert_array_equal(runner.run(IMAGE)["mask"], IMAGE[..., 0])
    assert not cuda.blocks and not cuda.open


def test_an_engine_that_does_not_fit_the_gpu(engine, gpu_of):
    cuda, _ = gpu_of(starts=False)
    with (
        pytest.raises(EngineError, match="does not start on the GPU: TensorRT gave no reason"),
        EngineRunner(engine, open_cuda=lambda device: cuda),
    ):
        pass
    assert not cuda.blocks and not cuda.open and cuda.calls[-1] == "close"


def test_an_engine_that_does_not_load(engine, gpu_of, monkeypatch):
    cuda, _ = gpu_of()
    monkeypatch.setattr(
        trt,
        "Runtime",
        lambda logger: SimpleNamespace(deserialize_cuda_engine=lambda plan: logger.log(ERROR, "too old")),
    )
    with (
        pytest.raises(EngineError, match=r"cannot load .*model\.engine: too old"),
        EngineRunner(engine, open_cuda=lambda device: cuda),
    ):
        pass
    assert cuda.calls[-1] == "close"


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
