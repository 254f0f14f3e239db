"""Pairs of settings that cannot work are refused by name; what inplace-ABN itself says of them is in its own words."""

import pytest
import torch

from rcil.core.errors import ConfigError
from rcil.tasks import compatibility
from rcil.tasks.compatibility import check_compatible
from rcil.tasks.load import load_task
from rcil.training.estimate import estimate
from rcil.training.run import run_task

CPU, GPU = torch.device("cpu"), torch.device("cuda", 0)


@pytest.fixture
def gpu(monkeypatch):
    """A GPU that has bf16, and an inplace-ABN that was compiled for it."""
    monkeypatch.setattr(torch.cuda, "device", lambda device: torch.no_grad())
    monkeypatch.setattr(torch.cuda, "is_bf16_supported", lambda: True)
    monkeypatch.setattr(compatibility, "inplace_abn_has_cuda", lambda: True)
    return GPU


def test_a_task_with_inplace_and_bf16_is_refused_when_it_is_read(task_file):
    with pytest.raises(ConfigError, match=r"norm inplace cannot train in bf16.*fp16.*norm abs"):
        load_task(task_file, ["network.norm=inplace", "training.precision=bf16"])
    load_task(task_file, ["network.norm=inplace", "training.precision=fp16"])


def test_inplace_and_fp16_on_a_cpu_are_refused_before_the_data_is_read(task_file, tmp_path):
    task = load_task(task_file, ["network.norm=inplace", "training.precision=fp16", "data.root=nowhere"])
    for call in (lambda: run_task(task, tmp_path / "run"), lambda: estimate(task)):
        with pytest.raises(ConfigError, match="cannot train in fp16 on a CPU") as error:
            call()
        assert "norm abs" in error.value.hint
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("precision", ["bf16", "fp16"])
def test_inplace_abn_really_has_no_such_kernels_on_a_cpu(precision):
    package = pytest.importorskip("inplace_abn")
    dtype = {"bf16": torch.bfloat16, "fp16": torch.float16}[precision]
    with pytest.raises(RuntimeError, match=r"not compatible|can't have type"):
        package.InPlaceABN(2)(torch.zeros(2, 2, 4, 4, dtype=dtype))
    with pytest.raises(ConfigError):
        check_compatible("inplace", precision, CPU)


def test_what_a_gpu_can_do_passes(gpu):
    for norm, precision in (("inplace", "fp16"), ("inplace", "fp32"), ("abs", "bf16"), ("batch", "fp16")):
        check_compatible(norm, precision, gpu)
    with pytest.raises(ConfigError, match="no bf16 kernels"):
        check_compatible("inplace", "bf16", gpu)


def test_an_old_gpu_has_no_bf16(gpu, monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_bf16_supported", lambda: False)
    with pytest.raises(ConfigError, match="cuda:0 does not support bf16") as error:
        check_compatible("batch", "bf16", gpu)
    assert "fp16" in error.value.hint
    check_compatible("batch", "fp16", gpu)


def test_inplace_abn_compiled_without_cuda(gpu, monkeypatch):
    pytest.importorskip("inplace_abn")
    monkeypatch.undo()
    monkeypatch.setattr("inplace_abn._backend.reduce_statistics", None, raising=False)
    assert compatibility.inplace_abn_has_cuda()
    monkeypatch.delattr("inplace_abn._backend.reduce_statistics")
    with pytest.raises(ConfigError, match="compiled without CUDA") as error:
        check_compatible("inplace", "fp32", GPU)
    assert "pip install" in error.value.hint
    check_compatible("abs", "fp32", GPU)
