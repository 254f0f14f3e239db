"""Small networks with difficult statistics."""

from __future__ import annotations

import copy
import importlib.util
from functools import lru_cache

import pytest
import torch
from torch import nn

from rcil.model.architecture import Architecture
from rcil.nn import Segmenter, begin_step, build
from rcil.nn.units.norms import is_norm

LITE = ["efficientnet_lite0", "efficientnet_lite1", "efficientnet_lite2"]
BACKBONES = ["resnet18", "resnet34", "resnet50", "resnet101", "efficientnet_lite0"]
HEADS = ["deeplabv3", "deeplabv3plus"]
needs_abn = pytest.mark.skipif(importlib.util.find_spec("inplace_abn") is None, reason="inplace-abn is not installed")
NORMS = ["batch", "abs", pytest.param("inplace", marks=needs_abn)]


def small_arch(backbone: str = "resnet18", **changes: object) -> Architecture:
    """The backbone at an eighth of its width; an EfficientNet-lite has one size.

    ResNet-18 has few blocks too, unless `blocks` is None.
    """
    size = {} if backbone in LITE else {"width": 8}
    if backbone == "resnet18":
        size["blocks"] = (1, 1, 1, 2)
    return Architecture().replace(**{"backbone": backbone, "head_width": 16, **size, **changes})


@torch.no_grad()
def randomise(model: nn.Module, seed: int = 0) -> None:
    """Norm statistics as training leaves them at their worst: negative, zero and tiny gammas, tiny variances."""
    generator = torch.Generator().manual_seed(seed)
    for module in model.modules():
        if is_norm(module):
            n = module.num_features
            gamma = 0.5 + torch.rand(n, generator=generator)
            gamma[1::3] *= -1
            gamma[5::16] = 0
            gamma[7::16] = 2e-5
            var = 0.5 + torch.rand(n, generator=generator)
            var[7::16] = 1e-9  # with a tiny gamma, or deep networks overflow
            module.weight.copy_(gamma)
            module.bias.copy_(0.1 * torch.randn(n, generator=generator))
            module.running_mean.copy_(0.2 * torch.randn(n, generator=generator))
            module.running_var.copy_(var)
    for parameter in model.parameters():
        if parameter.ndim == 4:
            fan_in = parameter[0].numel()
            parameter.copy_(torch.randn(parameter.shape, generator=generator) * (0.6 / fan_in) ** 0.5)


def at_step(arch: Architecture, step: int, *, seed: int = 0) -> Segmenter:
    """A network that has gone through `step` transitions, with fresh weights in what keeps training at each.

    Networks that were made lately are copied, which takes a third of the time or less. The generator of random numbers
    is left in the same state either way.
    """
    model, state = _made_lately(arch, step, seed)
    torch.set_rng_state(state)
    return copy.deepcopy(model)


@lru_cache(maxsize=8)
def _made_lately(arch: Architecture, step: int, seed: int) -> tuple[Segmenter, torch.Tensor]:
    model = make_at_step(arch, step, seed)
    return model, torch.get_rng_state()


def make_at_step(arch: Architecture, step: int, seed: int = 0) -> Segmenter:
    """The same, made anew, as it must be on a fake device."""
    torch.manual_seed(seed)
    model = build(arch, [["background", "a", "b"]])
    randomise(model, seed)
    for index in range(1, step + 1):
        model = begin_step(model, [f"new{index}"], rows="balanced")
        for module in model.modules():
            if hasattr(module, "frozen"):
                randomise(module.new, seed + index)
    return model.eval()
