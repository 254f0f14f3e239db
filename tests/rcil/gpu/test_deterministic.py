"""No kernel of a deterministic run on a GPU is one that torch refuses because it cannot be repeated."""

from collections import Counter
from unittest import mock

import pytest
from fake_cuda import Watch
from fake_runs import run_on_gpu
from torch import Tensor
from torch.utils._pytree import tree_leaves

from rcil.cli.completion import METHODS

REFUSED = {
    "avg_pool3d_backward",
    "_adaptive_avg_pool2d_backward",
    "_adaptive_avg_pool3d_backward",
    "adaptive_max_pool2d_backward",
    "fractional_max_pool2d_backward",
    "fractional_max_pool3d_backward",
    "max_unpool2d",
    "max_unpool3d",
    "upsample_linear1d_backward",
    "upsample_bilinear2d_backward",
    "upsample_bicubic2d_backward",
    "upsample_trilinear3d_backward",
    "reflection_pad1d_backward",
    "reflection_pad2d_backward",
    "reflection_pad3d_backward",
    "replication_pad1d_backward",
    "replication_pad2d_backward",
    "replication_pad3d_backward",
    "nll_loss2d_forward, reduced",
    "_ctc_loss_backward",
    "_embedding_bag_dense_backward",
    "put",
    "put_",
    "histc",
    "bincount, weighted",
    "median.dim",
    "grid_sampler_2d_backward",
    "grid_sampler_3d_backward",
    "cumsum, floating point",
    "scatter_reduce, prod",
}
"""Kernels without a deterministic form on CUDA, by the documentation of torch.use_deterministic_algorithms."""


def kernel(func, args):
    """The name of an operation, with what its determinism depends on."""
    name = func._schema.name.removeprefix("aten::")
    if name == "nll_loss2d_forward" and args[3] != 0:
        return f"{name}, reduced"
    if name == "bincount" and len(args) > 1 and args[1] is not None:
        return f"{name}, weighted"
    if name == "cumsum" and args[0].is_floating_point():
        return f"{name}, floating point"
    if name == "scatter_reduce":
        return f"{name}, {args[4]}"
    return f"{name}.dim" if name == "median" and len(args) > 1 else name


def kernels_of_a_run(task_file, output, method, deterministic):
    """The kernels that a whole run starts on the fake GPU, and how often."""
    seen = Counter()
    dispatch = Watch.__torch_dispatch__

    def record(self, func, types, args=(), kwargs=None):
        if any(isinstance(leaf, Tensor) and leaf.is_cuda for leaf in tree_leaves((args, kwargs))):
            seen[kernel(func, args)] += 1
        return dispatch(self, func, types, args, kwargs)

    with mock.patch.object(Watch, "__torch_dispatch__", record):
        run_on_gpu(task_file, output, f"training.deterministic={deterministic}", f"method.name={method}")
    return seen


@pytest.mark.slow
def test_the_list_of_refused_kernels_finds_what_is_used_without_the_switch(gpu, task_file, tmp_path):
    """Bilinear upsampling has a backward pass that cannot be repeated; torch replaces it where the switch is set."""
    plain = gpu(kernels_of_a_run, task_file, tmp_path / "run", "fine-tuning", "false")
    assert plain.keys() & REFUSED == {"upsample_bilinear2d_backward"}
    repeatable = gpu(kernels_of_a_run, task_file, tmp_path / "again", "fine-tuning", "true")
    assert not repeatable.keys() & REFUSED and "convolution_backward" in repeatable
    assert repeatable.total() > plain.total(), "the price"


SLOWER = [pytest.param(name, marks=pytest.mark.slow) for name in METHODS if name != "sdr"]


@pytest.mark.parametrize("method", ["sdr", *SLOWER])
def test_every_kernel_of_a_run_can_be_repeated(gpu, task_file, tmp_path, method):
    found = gpu(kernels_of_a_run, task_file, tmp_path / "run", method, "true")
    assert "convolution_backward" in found
    assert not found.keys() & REFUSED
