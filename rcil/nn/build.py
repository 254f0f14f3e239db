"""Building of networks from architectures, with random weights."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

import torch
from torch import nn

from rcil.core.errors import ConfigError
from rcil.nn.network import Network
from rcil.nn.segmenter import Segmenter

if TYPE_CHECKING:
    from rcil.model.architecture import Architecture
    from rcil.model.metadata import AnyArchitecture


def build(arch: Architecture, steps: Sequence[Sequence[str]]) -> Segmenter:
    """A network with random weights.

    Args:
        arch: The architecture. A folded architecture gives the deployed form: convs with bias, no norms.
        steps: Class names of each step, background first.
    """
    if arch.folded:
        arch, steps = arch.replace(norm="batch"), [[name for names in steps for name in names]]
    model = Segmenter(arch, steps)
    if not next(model.parameters()).is_meta:
        _initialise(model, arch.slope)
    return model.eval() if arch.folded else model


def build_any(arch: AnyArchitecture, steps: Sequence[Sequence[str]]) -> Network:
    """The network of a description. One of another library is built by its own factory, if its package is allowed."""
    from rcil.model.adopted import AdoptedGraph
    from rcil.model.architecture import Architecture

    if isinstance(arch, AdoptedGraph):
        raise ConfigError(
            f"the network of {arch.graph} exists as an ONNX graph only, which cannot be built or trained",
            "Let it label images with `rcil-export prelabel`, and train one of our networks on them.",
        )
    if isinstance(arch, Architecture):
        return build(arch, steps)
    from rcil.nn.attached.network import build_attached

    return build_attached(arch, steps)


def build_form(arch: Architecture, steps: Sequence[Sequence[str]]) -> Segmenter:
    """The network on the meta device, to compare a file with its names and shapes before memory is allocated."""
    plain = arch.replace(norm="abs") if arch.norm == "inplace" else arch  # the compiled norm has no meta kernel
    with torch.device("meta"):
        return build(plain, steps)


def _initialise(model: Segmenter, slope: float) -> None:
    """He-normal backbone, Xavier-normal head, both with the gain of the leaky ReLU; zero classifier bias.

    torch's own He initialisation counts all output channels of a depthwise conv, which makes its weights vanish. Here
    the fan-out is that of one group.
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


def plain_twin(model: Network) -> Network:
    """The network without RC: same backbone, head and classes, every unit one conv with bias.

    The folded `model` must cost the same. The twin is built from the architecture alone, without `fold`, RC blocks or
    norms. Its weights are random. Shapes and state-dict keys equal those of the folded model, so the folded weights
    load into the twin.
    """
    if not isinstance(model, Segmenter):
        with torch.device("cpu"):  # not every factory can build a module on the meta device
            return build_any(model.arch.replace(rc=None, folded=True), [model.names])
    return build(model.arch.replace(rc=None, folded=True), [model.names])
