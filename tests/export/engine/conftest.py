"""A machine without a GPU and with TensorRT-RTX only, whatever the real one has; tests add to it."""

import shutil
import sys
from types import ModuleType

import pytest
from onnx_models import segmenter

from rcil_export.engine import build, flavour, runner
from rcil_export.engine.gpu import Gpu


@pytest.fixture
def set_gpus(monkeypatch):
    """Call it with compute capabilities: they are the GPUs of this machine from then on."""

    def set_them(*capabilities):
        found = tuple(Gpu(f"GPU {name}", name) for name in capabilities)
        for module in (build, flavour, runner):
            monkeypatch.setattr(module, "find_gpus", lambda: found)

    return set_them


@pytest.fixture(scope="session")
def built_folder(tmp_path_factory):
    """A graph and its engine for one kind of GPU, built once; nothing writes to it."""
    pytest.importorskip("tensorrt_rtx")
    folder = tmp_path_factory.mktemp("built")
    source, options = segmenter(folder / "model.onnx"), build.EngineOptions(gpus=("sm86",), flavour="rtx")
    build.build_engine(source, folder / "model.engine", options)
    return folder


@pytest.fixture
def built(built_folder, tmp_path):
    """A copy of the engine, beside its graph."""
    shutil.copytree(built_folder, tmp_path, dirs_exist_ok=True)
    return tmp_path / "model.engine"


@pytest.fixture(autouse=True)
def plain_machine(monkeypatch, set_gpus, tmp_path):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setitem(sys.modules, "tensorrt", None)
    set_gpus()


@pytest.fixture
def classic(monkeypatch):
    """A package `tensorrt`: TensorRT-RTX without what makes it RTX, so its parser and builder are real."""
    rtx = pytest.importorskip("tensorrt_rtx")
    module = ModuleType("tensorrt")
    module.__dict__.update({name: value for name, value in vars(rtx).items() if name != "ComputeCapability"})
    module.__version__ = "10.99.0"
    monkeypatch.setitem(sys.modules, "tensorrt", module)
    return module


@pytest.fixture
def no_rtx(monkeypatch):
    monkeypatch.setitem(sys.modules, "tensorrt_rtx", None)
