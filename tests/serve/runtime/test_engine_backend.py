import numpy as np
import pytest
from served import FIXED, write_model

from rcil.core.errors import CheckpointError, ConfigError
from rcil_export.engine.build import EngineOptions, build_engine
from rcil_export.engine.errors import NoGpuError
from rcil_serve.runtime import engine_backend as module
from rcil_serve.runtime.backends import open_backend

pytest.importorskip("tensorrt_rtx")


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    folder = tmp_path_factory.mktemp("engine")
    source = write_model(folder / "model.onnx", FIXED, runtime="tensorrt")
    build_engine(source, folder / "model.engine", EngineOptions(gpus=("sm86",)))
    return folder / "model.engine"


def test_without_a_gpu_the_onnx_file_is_named(built, monkeypatch):
    from rcil_export.engine import runner as run

    monkeypatch.setattr(run, "find_gpus", tuple)
    with pytest.raises(NoGpuError, match=r"needs an NVIDIA GPU(.|\n)*model\.onnx instead"):
        open_backend(built)
    with pytest.raises(ConfigError, match="a TensorRT engine, which needs a GPU"):
        open_backend(built, "cpu")


def test_an_engine_runs_through_its_runner_and_ends_with_it(built, monkeypatch):
    calls = []

    class Runner(module.EngineRunner):
        def __enter__(self):
            calls.append("enter")
            return self

        def __exit__(self, *_):
            calls.append("exit")

        def run(self, image):
            return {"mask": image[..., 0]}

    monkeypatch.setattr(module, "EngineRunner", Runner)
    backend = open_backend(built)
    assert backend.interface.shape == FIXED and backend.interface.runtime == "tensorrt"
    assert "TensorRT" in backend.device and len(backend.sha256) == 64
    image = np.full((1, 48, 64, 3), 3, np.uint8)
    assert (backend.run(image).mask == 3).all()
    backend.close()
    backend.close()
    assert calls == ["enter", "exit"]


def test_a_changed_engine_is_refused(built, tmp_path):
    for name in ("model.engine", "model.engine.json"):
        (tmp_path / name).write_bytes((built.parent / name).read_bytes())
    (tmp_path / "model.engine").write_bytes(b"other")
    with pytest.raises(Exception, match="is not the file that"):
        open_backend(tmp_path / "model.engine")
    (tmp_path / "model.engine.json").write_text("{")
    with pytest.raises(CheckpointError, match="does not describe an engine"):
        open_backend(tmp_path / "model.engine")
