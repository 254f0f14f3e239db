import sys
from types import ModuleType

import pytest

from rcil.core.errors import ConfigError, MissingDependencyError
from rcil_export.engine.errors import NoGpuError
from rcil_export.engine.flavour import find_flavour, flavour_of

trt = pytest.importorskip("tensorrt_rtx")


def test_the_interface_decides_not_the_name(classic):
    assert flavour_of(trt).name == "rtx"
    assert flavour_of(classic).name == "classic"


@pytest.mark.parametrize(
    ("gpu", "expected"), [((), "rtx"), (("sm86",), "classic")], ids=["without a GPU", "with a GPU"]
)
def test_auto_prefers_the_classic_one_where_a_gpu_is(classic, set_gpus, gpu, expected):
    set_gpus(*gpu)
    found = find_flavour()
    assert found.name == expected
    assert found.version == {"rtx": trt.__version__, "classic": "10.99.0"}[expected]


def test_auto_takes_rtx_on_a_gpu_if_it_is_the_only_one(set_gpus):
    set_gpus("sm86")
    assert find_flavour().title == f"TensorRT-RTX {trt.__version__}"


def test_a_request_is_never_altered(classic, set_gpus):
    set_gpus("sm86")
    assert find_flavour("rtx").name == "rtx"


def test_nothing_installed(no_rtx):
    with pytest.raises(MissingDependencyError) as caught:
        find_flavour()
    assert caught.value.message == "no TensorRT is installed"
    assert "pip install 'rcil[rtx]'" in caught.value.hint
    assert "pip install 'rcil[tensorrt]'" in caught.value.hint


def test_the_other_one_installed(classic, no_rtx):
    with pytest.raises(
        MissingDependencyError, match="TensorRT-RTX is not installed\nInstall it with: pip install 'rcil"
    ):
        find_flavour("rtx")


def test_classic_is_not_installed():
    with pytest.raises(MissingDependencyError, match=r"TensorRT is not installed\n.*'rcil\[tensorrt\]'"):
        find_flavour("classic")


@pytest.mark.parametrize("choice", ["classic", "auto"])
def test_classic_without_a_gpu(classic, no_rtx, choice):
    with pytest.raises(NoGpuError, match=r"there is none here\n.*rcil\[rtx\]"):
        find_flavour(choice)


def test_a_misspelt_flavour():
    with pytest.raises(ConfigError, match="there is no TensorRT flavour 'clasic'\nDid you mean 'classic'"):
        find_flavour("clasic")


@pytest.mark.parametrize("error", [ImportError("libnvinfer.so.10: cannot open"), ModuleNotFoundError(name="bindings")])
def test_a_package_that_does_not_import(monkeypatch, tmp_path, error):
    class Finder:
        @staticmethod
        def find_spec(name, path=None, target=None):
            if name == "tensorrt":
                raise error

    monkeypatch.delitem(sys.modules, "tensorrt")
    monkeypatch.setattr(sys, "meta_path", [Finder, *sys.meta_path])
    with pytest.raises(MissingDependencyError, match="tensorrt is installed but cannot be imported"):
        find_flavour()


def test_a_module_with_compute_capabilities_is_rtx_under_any_name(monkeypatch, no_rtx):
    module = ModuleType("tensorrt")
    module.ComputeCapability = trt.ComputeCapability
    module.__version__ = "11.0"
    monkeypatch.setitem(sys.modules, "tensorrt", module)
    assert find_flavour().name == "rtx"
