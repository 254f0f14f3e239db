"""Merged kernels of the official code: 1e-5 relative (+1e-6), outputs 2e-6 of the maximum."""

import numpy as np
import pytest
import torch
from official_recipe import GOLDEN, golden_json
from torch import nn

from rcil.nn.units.convnorm import ConvNorm, kernel_of
from rcil.nn.units.norms import AbsBatchNorm2d
from rcil.nn.units.rc import DropPathMix, RCConv

CASES = golden_json("official_merge")["cases"]
SINGLE = [name for name in CASES if not name.startswith("head")]


@pytest.fixture(scope="module")
def arrays():
    return np.load(GOLDEN / "official_merge.npz")


def tensor(array):
    return torch.from_numpy(np.asarray(array, dtype=np.float32))


def norm_from(arrays, prefix, eps, part=slice(None)):
    fields = ("weight", "bias", "running_mean", "running_var")
    values = {field: tensor(arrays[f"{prefix}.{field}"])[part] for field in fields}
    norm = AbsBatchNorm2d(len(values["weight"]), eps=eps)
    norm.load_state_dict(values, strict=False)
    return norm


def block_from(arrays, case, geometry, conv_keys, eps, part=slice(None)):
    branches = []
    for conv_key, norm_key in zip(conv_keys, ("bn", "bn_new"), strict=True):
        weight = tensor(arrays[f"{case}.{conv_key}.weight"])
        bias = f"{case}.{conv_key}.bias"
        conv = nn.Conv2d(weight.shape[1], weight.shape[0], bias=bias in arrays.files, **geometry)
        conv.weight.data = weight
        if conv.bias is not None:
            conv.bias.data = tensor(arrays[bias])
        branches.append(ConvNorm(conv, norm_from(arrays, f"{case}.{norm_key}", eps[norm_key], part)))
    return RCConv(*branches, DropPathMix(weight.shape[0])).eval()


def assert_kernel(conv, kernel, bias):
    np.testing.assert_allclose(conv.weight.detach(), kernel, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(conv.bias.detach(), bias, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("case", SINGLE)
def test_single(case, arrays):
    facts = CASES[case]
    geometry = {"kernel_size": facts["kernel"], **{k: facts[k] for k in ("stride", "padding", "dilation")}}
    eps = {"bn": facts["eps_bn"], "bn_new": facts["eps_bn_new"]}
    block = block_from(arrays, case, geometry, ("conv", "conv_new"), eps)
    assert_kernel(block.merged(), arrays[f"{case}.merged.kernel"], arrays[f"{case}.merged.bias"])
    for branch, name in ((block.old, "merge"), (block.new, "merge_new")):
        weight, bias = kernel_of(branch)
        np.testing.assert_allclose(weight / 2, arrays[f"{case}.{name}.kernel"], rtol=1e-5, atol=1e-6)
        np.testing.assert_allclose(bias / 2, arrays[f"{case}.{name}.bias"], rtol=1e-5, atol=1e-6)
    x, expected = tensor(arrays[f"{case}.x"]), arrays[f"{case}.two_branch_output"]
    with torch.no_grad():
        for output in (block(x), block.merged()(x)):
            assert np.abs(output.numpy() - expected).max() <= 2e-6 * np.abs(expected).max()


@pytest.mark.parametrize("case", ["head", "head_bias"])
def test_aspp(case, arrays):
    """The official norm spans the four concatenated paths; here each path has its quarter."""
    x, outputs = tensor(arrays[f"{case}.x"]), []
    for path, rate in enumerate(CASES[case]["dilations"]):
        kernel = 1 if path == 0 else 3
        geometry = {"kernel_size": kernel, "dilation": rate, "padding": 0 if kernel == 1 else rate}
        eps = dict.fromkeys(("bn", "bn_new"), CASES[case]["eps_bn"])
        part = slice(256 * path, 256 * (path + 1))
        block = block_from(arrays, case, geometry, (f"conv.{path}", f"conv_new.{path}"), eps, part)
        assert_kernel(block.merged(), arrays[f"{case}.merged.{path}.kernel"], arrays[f"{case}.merged.{path}.bias"])
        with torch.no_grad():
            outputs.append(block(x))
    expected = arrays[f"{case}.two_branch_output_every8th_channel"]
    got = torch.cat(outputs, dim=1)[:, ::8].numpy()
    assert np.abs(got - expected).max() <= 2e-6 * np.abs(expected).max()
