"""From an architecture to a network with random weights."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

import torch
from torch import nn

from rcil.nn.segmenter import Segmenter

if TYPE_CHECKING:
    from rcil.architecture import Architecture


def build(arch: Architecture, steps: Sequence[Sequence[str]]) -> Segmenter:
    """A network with random weights.

    Args:
        arch: Its shape. A folded architecture gives the deployed form: convs with bias, no norms.
        steps: Class names of each step, background first.
    """
    if arch.folded:
        arch, steps = arch.replace(norm="batch"), [[name for names in steps for name in names]]
    model = Segmenter(arch, steps)
    if not next(model.parameters()).is_meta:
        _initialise(model, arch.slope)
    return model.eval() if arch.folded else model


def build_form(arch: Architecture, steps: Sequence[Sequence[str]]) -> Segmenter:
    """The network as names and shapes, on the meta device: what a file is compared with before memory is taken."""
    plain = arch.replace(norm="abs") if arch.norm == "inplace" else arch  # compiled: no meta device
    with torch.device("meta"):
        return build(plain, steps)


def _initialise(model: Segmenter, slope: float) -> None:
    """He-normal backbone, Xavier-normal head, both with the gain of the leaky ReLU; zero classifier bias.

    torch's own He start counts all output channels of a depthwise conv, which makes its weights vanish; here the
    fan-out is that of one group.
    """
    gain = math.sqrt(2 / (1 + slope**2))
    for conv in model.backbone.modules():
        if isinstance(conv, nn.Conv2d):
            fan_out = conv.weight[0, 0].numel() * conv.out_channels / conv.groups
            nn.init.normal_(conv.weight, std=gain / math.sqrt(fan_out))
    for conv in model.head.modules():
        if isinstance(conv, nn.Conv2d):
            nn.init.xavier_normal_(conv.weight, gain)
    for group in model.classifier.groups:
        nn.init.zeros_(group.bias)  # type: ignore[arg-type]


def plain_twin(model: Segmenter) -> Segmenter:
    """The network that never had RC: same backbone, head and classes, every unit one conv with bias.

    What the folded `model` must cost. It is built from the architecture alone; neither `fold` nor RC blocks nor norms
    take part. Weights are random; shapes and state-dict keys equal those of the folded model, so its weights load into
    the twin.
    """
    arch = model.arch.replace(rc=None, folded=True)
    return build(arch, [model.names])
