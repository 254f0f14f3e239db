import sys
from types import ModuleType

import pytest

from rcil.core.errors import ConfigError, MissingDependencyError
from rcil_export.engine.errors import NoGpuError
from rcil_export.engine.flavour import choose_gpus, find_flavour, flavour_of, known_gpus

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
    with pytest.raises(NoGpuError, match=r"this machine has none\n.*rcil\[rtx\]"):
        find_flavour(choice)


def test_a_misspelt_flavour():
    with pytest.raises(ConfigError, match="unknown TensorRT flavour 'clasic'\nDid you mean 'classic'"):
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


trt = pytest.importorskip("tensorrt_rtx")


@pytest.fixture
def rtx():
    return flavour_of(trt)


def test_known_gpus_come_from_the_package_in_the_order_of_age(rtx):
    assert len(known_gpus(rtx)) == len(trt.ComputeCapability.__members__) - 2
    assert known_gpus(rtx)[:4] == ("sm75", "sm80", "sm86", "sm89")
    assert known_gpus(rtx)[-1].startswith("sm12")


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
def test_by_default_all_but_turing(rtx, precision):
    assert choose_gpus(rtx, (), precision) == known_gpus(rtx)[1:]


def test_a_request_is_sorted_and_has_no_doubles(rtx):
    assert choose_gpus(rtx, ("sm120", "SM86", "sm86"), "fp16") == ("sm86", "sm120")


def test_an_unknown_gpu_lists_the_choices(rtx):
    with pytest.raises(ConfigError, match="cannot build for 'sm90'\nIt builds for sm75, sm80, sm86, sm89"):
        choose_gpus(rtx, ("sm86", "sm90"), "fp32")


def test_turing_has_no_bf16(rtx):
    with pytest.raises(ConfigError, match=r"sm75 cannot compute in bf16\nLeave it out \(bf16 works on sm80, sm86"):
        choose_gpus(rtx, ("sm75", "sm86"), "bf16")
    assert choose_gpus(rtx, ("sm75",), "int8") == ("sm75",)


def test_classic_builds_for_the_gpu_that_is_here(classic, set_gpus):
    set_gpus("sm75", "sm90")
    flavour = flavour_of(classic)
    assert choose_gpus(flavour, (), "fp16") == ("sm75",)
    assert choose_gpus(flavour, ("SM75",), "fp16") == ("sm75",)
    with pytest.raises(ConfigError, match=r"the GPU of this machine \(sm75\), not for sm86"):
        choose_gpus(flavour, ("sm86",), "fp16")
    with pytest.raises(ConfigError, match="bf16 works on newer GPUs"):
        choose_gpus(flavour, (), "bf16")
