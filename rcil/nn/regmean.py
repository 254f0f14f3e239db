"""Closed-form fusion of the convs of two networks, layer by layer.

Instead of one share for all weights, the fused conv is the one whose outputs are closest to those of the old conv on
what the old network feeds it, and to those of the new conv on what the new network feeds it. This is linear regression,
and all it needs of the inputs is their autocorrelation.

The images of earlier steps are gone. Statistics of them could be kept, but the autocorrelations of all layers take more
memory than the network itself. So both are measured on the images of the step, whose background shows old classes: the
old autocorrelation is that of what the old network's layers read on them.

After RegMean, https://arxiv.org/abs/2212.09849, which fuses linear layers.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Iterable
from contextlib import ExitStack
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from rcil.core.errors import ConfigError
from rcil.core.log import stage
from rcil.nn.network import Network
from rcil.nn.units.convnorm import ConvNorm, ConvSum
from rcil.nn.units.rc import RCConv

Kernel = tuple[Tensor, Tensor]
"""Weight [O, I/G, kh, kw] and bias [O]."""
Unit = RCConv | ConvNorm | ConvSum
OFF_DIAGONAL = 0.9
"""Factor of the products of different inputs (alpha of the paper), so that no rare combination of them dominates."""
RIDGE = 1e-6
"""Added to the diagonal, relative to its mean. Weights of an input that is always 0 are interpolated."""
MAX_INPUTS = 2048
"""The taps of a kernel that reads more numbers per output are fused apart; see `Layout`."""
MAX_PIXELS = 400
"""Evenly spread pixels per image and layer."""
OWN = ("torch.nn.", "rcil.nn.")
"""Packages whose convs treat all input channels alike."""


class Layout:
    """How a conv is written as linear layers [G, R, D + 1] over D inputs and the constant 1, one for each group.

    The inputs of a pixel are the patch that the kernel reads, D = I/G kh kw; a depthwise 3x3 conv has 9 per channel.
    Above `MAX_INPUTS` the taps are fused apart, as if what they read were independent. Then every tap is a 1x1 conv
    with an equal part of the bias, D = I/G, and all taps share the autocorrelation of the channels.

    Args:
        shape: Shape of the kernel [O, I/G, kh, kw].
        conv: The conv, whose stride and padding count; None if its inputs are those of a 1x1 conv of stride 1.
    """

    def __init__(self, shape: tuple[int, ...], conv: nn.Conv2d | None) -> None:
        self.shape = shape
        self.groups = 1 if conv is None else conv.groups
        self.taps = shape[2] * shape[3]
        self.apart = shape[1] * self.taps > MAX_INPUTS
        self.tap = None if conv is None or (self.apart and self.taps > 1) else _taps_of(conv)

    @classmethod
    def of(cls, unit: Unit) -> Layout:
        """The layout of a unit; the two convs of a sum are one conv over both maps."""
        if isinstance(unit, ConvSum):
            left, right = unit.left.weight.shape, unit.right.weight.shape
            return cls((left[0], left[1] + right[1], 1, 1), None)
        return cls(tuple(unit.anchor.weight.shape), unit.anchor)

    def rows(self, kernel: Kernel) -> Tensor:
        """The linear layers of a kernel and its bias."""
        weight = kernel[0].reshape(self.groups, -1, self.shape[1], self.taps)
        bias = kernel[1].reshape(self.groups, -1, 1)
        if self.apart:
            weight = weight.transpose(2, 3).flatten(1, 2)
            bias = bias.repeat_interleave(self.taps, dim=1) / self.taps
        return torch.cat((weight.flatten(2), bias), dim=2)

    def kernel(self, rows: Tensor) -> Kernel:
        """The inverse of `rows`."""
        weight, bias = rows[..., :-1], rows[..., -1]
        if self.apart:
            weight = weight.reshape(self.groups, -1, self.taps, self.shape[1]).transpose(2, 3)
            bias = bias.reshape(self.groups, -1, self.taps).sum(dim=2)
        return weight.reshape(self.shape), bias.flatten()

    def patches(self, x: Tensor) -> Tensor:
        """Inputs of all output pixels [N, G, D, h, w] in maps [N, I, H, W]; of those of the maps if taps are apart."""
        count, channels = x.shape[:2]
        if self.tap is not None:  # each channel is an image of its own
            x = self.tap.to(x)(x.reshape(count * channels, 1, *x.shape[2:]))
        return x.reshape(count, self.groups, -1, *x.shape[2:])

    def inputs(self, x: Tensor) -> Tensor:
        """The same of evenly spread pixels [G, D, P]."""
        patches = self.patches(x)
        height, width = patches.shape[3:]
        stride = max(1, height * width // MAX_PIXELS)
        while math.gcd(stride, width) > 1:  # not always the same columns
            stride -= 1
        return patches.flatten(3)[..., ::stride].permute(1, 2, 0, 3).flatten(2)


def _taps_of(conv: nn.Conv2d) -> nn.Conv2d:
    """A conv of one channel that returns what each tap of `conv` reads [N, kh kw, h, w], whatever its padding."""
    taps = conv.weight.shape[2] * conv.weight.shape[3]
    one = copy.deepcopy(conv)
    one.in_channels, one.out_channels, one.groups, one.bias = 1, taps, 1, None
    identity = torch.eye(taps).view(taps, 1, *conv.weight.shape[2:])
    one.weight = nn.Parameter(identity.to(conv.weight), requires_grad=False)
    return one


class Autocorrelation:
    """Mean products [G, D + 1, D + 1] of all pairs of inputs of a layer; maps are added one at a time.

    Products are computed in the precision of the maps and summed in float64.
    """

    def __init__(self, layout: Layout) -> None:
        self.layout = layout
        self.pixels = 0
        self.products: Tensor | None = None

    def add(self, x: Tensor) -> None:
        """Add maps [N, I, H, W]."""
        inputs = self.layout.inputs(x)
        inputs = torch.cat((inputs, inputs.new_ones(inputs.shape[0], 1, inputs.shape[2])), dim=1)
        products = (inputs @ inputs.mT).double()
        self.products = products if self.products is None else self.products.add_(products)
        self.pixels += inputs.shape[2]

    def regular(self, like: Tensor, size: int) -> Tensor:
        """The autocorrelation of the first inputs [G, size, size], shrunk towards its diagonal, and invertible."""
        groups = self.layout.groups
        mean = like.new_zeros(groups, size, size)
        if self.products is not None:
            mean = self.products[:, :size, :size].to(like) / self.pixels
        diagonal = mean.diagonal(dim1=1, dim2=2)
        least = RIDGE * diagonal.mean(dim=1, keepdim=True).clamp(min=RIDGE)
        return OFF_DIAGONAL * mean + torch.diag_embed((1 - OFF_DIAGONAL) * diagonal + least)


@dataclass(frozen=True)
class LayerFusion:
    """The fusion of one layer."""

    layout: Layout
    old: Autocorrelation
    new: Autocorrelation

    def __call__(self, old: Kernel, new: Kernel, share: float, *, shifts: bool = True) -> Kernel:
        """The kernel W = ((1 - share) W_o C_o + share W_n C_n) ((1 - share) C_o + share C_n)^-1, its bias included.

        Args:
            old: The folded old conv, in float64.
            new: The folded new conv.
            share: Weight of the new network; 0.5 is the formula of the paper.
            shifts: Whether the layer has a bias; if not, both biases must be 0.
        """
        before, after = (self.layout.rows(kernel) for kernel in (old, new))
        size = after.shape[2] if shifts else after.shape[2] - 1
        weigh_old = (1 - share) * self.old.regular(after, size)
        weigh_new = share * self.new.regular(after, size)
        wanted = before[..., :size] @ weigh_old + after[..., :size] @ weigh_new
        fused = after.clone()
        fused[..., :size] = torch.linalg.solve(weigh_old + weigh_new, wanted.mT).mT
        return self.layout.kernel(fused)


@torch.no_grad()
def measure_fusion(new: Network, old: Network, images: Iterable[Tensor]) -> dict[str, LayerFusion]:
    """The fusion of every unit of `new`, by its name. Both networks see all images, in evaluation mode.

    Args:
        new: The network after a step, not folded.
        old: The network before the step, with units of the same names.
        images: Batches of normalised images [N, 3, H, W]; without images, weights are interpolated.
    """
    layouts = {name: Layout.of(unit) for name, unit in units_of(new)}
    found = {name: LayerFusion(lay, Autocorrelation(lay), Autocorrelation(lay)) for name, lay in layouts.items()}
    with ExitStack() as hooks, stage("autocorrelation of all layers"):
        for network, side in ((old.eval(), "old"), (new.eval(), "new")):
            parts = dict(network.named_modules())
            for name, fusion in found.items():
                hook = parts[name].register_forward_pre_hook(_adder(getattr(fusion, side)))
                hooks.callback(hook.remove)
        for batch in images:
            for network in (old, new):
                network(batch.to(next(network.parameters())))
    return found


def _adder(correlation: Autocorrelation) -> Callable[[nn.Module, tuple[Tensor, ...]], None]:
    """A hook that adds what a unit reads; the second map of a sum may have a single pixel."""

    def add(_: nn.Module, maps: tuple[Tensor, ...]) -> None:
        size = maps[0].shape[2:]
        correlation.add(torch.cat([x.expand(-1, -1, *size) for x in maps], dim=1))

    return add


def units_of(network: Network) -> list[tuple[str, Unit]]:
    """The units of a network that are fused as a whole; branches of RC blocks are parts of them."""
    found: list[tuple[str, Unit]] = []
    for name, module in network.named_modules():
        inside = found and name.startswith(f"{found[-1][0]}.")
        if isinstance(module, Unit) and not inside:
            found.append((name, module))
    return found


@torch.no_grad()
def check_layers(network: Network) -> None:
    """Raise if a layer of another library reads its input in a way that cannot be measured."""
    for name, unit in units_of(network):
        conv = None if isinstance(unit, ConvSum) else unit.anchor
        if conv is None or f"{type(conv).__module__}.".startswith(OWN):
            continue
        if not _reads_patches(conv, Layout.of(unit)):
            raise ConfigError(
                f"the conv {name} is a {type(conv).__name__}, whose inputs fuse: regmean cannot measure",
                "Set fuse to true, which interpolates all weights, or to false.",
            )


def _reads_patches(conv: nn.Conv2d, layout: Layout) -> bool:
    """Whether the output of a conv is its kernel times the patches of its layout, on random numbers."""
    one = copy.deepcopy(conv).double().cpu()
    one.bias = None
    sides = [
        step + dilation * size for step, dilation, size in zip(one.stride, one.dilation, one.kernel_size, strict=True)
    ]
    x = torch.randn(1, one.in_channels, *sides, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    try:
        patches = layout.patches(x)[0].flatten(2)
        rows = layout.rows((one.weight, one.weight.new_zeros(one.out_channels)))[..., :-1]
        return layout.apart or torch.allclose((rows @ patches).flatten(), one(x).flatten())
    except (RuntimeError, ValueError, TypeError, AttributeError):  # any code may run inside
        return False
