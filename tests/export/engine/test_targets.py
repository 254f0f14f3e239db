import pytest

from rcil.core.errors import ConfigError
from rcil_export.engine.flavour import flavour_of
from rcil_export.engine.targets import choose_gpus, known_gpus

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
