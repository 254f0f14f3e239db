"""Cost of a network: parameters and multiply-accumulates."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from rcil.core.errors import RcilError
from rcil.nn.fold import M, count_parameters, duplicate
from rcil.nn.units.norms import is_inplace


@dataclass(frozen=True)
class Cost:
    """Cost of one forward pass of one image."""

    parameters: int
    macs: int
    size: tuple[int, int]
    """Image height and width."""


@torch.no_grad()
def cost(model: nn.Module, size: tuple[int, int] = (512, 512)) -> Cost:
    """Count parameters and the multiply-accumulates of all convs and linear layers.

    Shapes are propagated on torch's meta device, which takes no time and no memory, unless code of another library
    needs real tensors. Norms and other elementwise operations do not count.
    """
    try:
        macs = _macs(on_meta(model).eval(), torch.empty(1, 3, *size, device="meta"))
    except (RcilError, RuntimeError):
        reference = next(model.parameters())
        macs = _macs(duplicate(model, {}).eval(), torch.zeros(1, 3, *size).to(reference))
    return Cost(count_parameters(model), macs, size)


def _macs(model: nn.Module, image: Tensor) -> int:
    """Multiply-accumulates of one pass; counting hooks stay in `model`."""
    total = 0

    def count(module: nn.Module, _: object, output: Tensor) -> None:
        nonlocal total
        weight = module.weight
        assert isinstance(weight, Tensor)
        total += output.numel() * weight[0].numel()

    for module in model.modules():
        if isinstance(module, nn.Conv2d | nn.Linear):
            module.register_forward_hook(count)
    model(image)
    return total


def on_meta(model: M) -> M:
    """A copy on the meta device; compiled norms, which have no meta kernel, become plain ones."""
    memo: dict[int, object] = {id(p): nn.Parameter(p.detach().to("meta"), p.requires_grad) for p in model.parameters()}
    shadow = duplicate(model, memo | {id(b): b.to("meta") for b in model.buffers()})
    for parent in list(shadow.modules()):
        for key, child in list(parent.named_children()):
            if is_inplace(child):
                setattr(parent, key, nn.BatchNorm2d(int(child.num_features), device="meta"))  # type: ignore[arg-type]
    return shadow
