"""Which layers folding makes hard to quantise, computed from the weights before any calibration.

Norms scale every output channel by another factor. Folding puts these factors into the kernel, so channels that had
similar weights get ranges far apart, and the two branches of an RC block add up. Where the norm had evened out the
channels, the folded layer's values differ by channel just as much, and a value has one int8 scale for all channels.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from rcil.nn import Network, RCConv, fold
from rcil.nn.units.convnorm import ConvNorm


@dataclass(frozen=True)
class LayerRisk:
    """One conv of the folded network."""

    name: str
    """As in the ONNX graph."""
    growth: float
    """Largest range of a folded output channel over the largest range of the branches' kernels before their norms."""
    spread_before: float
    """Largest range of a channel over the median one, in the branch where that is larger, before the norm."""
    spread: float
    """The same in the folded kernel."""

    @property
    def score(self) -> float:
        """How much folding widened the layer: growth of the spread between channels, times growth where it grew."""
        return self.spread / self.spread_before * max(self.growth, 1.0)


def risk_table(model: Network) -> tuple[LayerRisk, ...]:
    """Every conv that folding changes, the riskiest first.

    Args:
        model: Before folding; it is not changed. A folded model has nothing to compare with and gives an empty table.
    """
    folded = dict(fold(model)[0].named_modules())
    risks = []
    for name, module in model.named_modules():
        kernels = _kernels(module)
        if not kernels or name not in folded:
            continue
        target = folded[name]
        layer, path = (target[0], f"{name}.0") if isinstance(target, nn.Sequential) else (target, name)
        if isinstance(layer, nn.Conv2d):
            risks.append(_compare(path, kernels, layer.weight))
    return tuple(sorted(risks, key=lambda risk: (-risk.score, risk.name)))


def _kernels(module: nn.Module) -> list[Tensor]:
    """Kernels of the branches that one folded conv replaces, before their norms."""
    if isinstance(module, RCConv):
        return [_kernel(module.old), _kernel(module.new)]
    return [_kernel(module)] if isinstance(module, ConvNorm) else []


def _kernel(branch: nn.Module) -> Tensor:
    conv = branch.conv if isinstance(branch, ConvNorm) else branch
    assert isinstance(conv, nn.Conv2d)
    return conv.weight


def _compare(name: str, kernels: list[Tensor], folded: Tensor) -> LayerRisk:
    before = [_channel_ranges(kernel) for kernel in kernels]
    after = _channel_ranges(folded)
    largest = max(float(ranges.max()) for ranges in before)
    return LayerRisk(
        name,
        growth=float(after.max()) / max(largest, 1e-30),
        spread_before=max(_spread(ranges) for ranges in before),
        spread=_spread(after),
    )


@torch.no_grad()
def _channel_ranges(kernel: Tensor) -> Tensor:
    """Largest magnitude of every output channel [O]."""
    return kernel.detach().double().abs().flatten(1).amax(1)


def _spread(ranges: Tensor) -> float:
    return float(ranges.max() / ranges.median().clamp_min(1e-30))
