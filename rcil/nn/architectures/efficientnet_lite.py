"""EfficientNet-lite0, 1 and 2: backbones for edge devices, RC on their depthwise convs.

They have ReLU6, no squeeze-and-excitation, TensorFlow's "same" padding and TensorFlow's norm eps, which reproduces the
published ImageNet weights. Inputs are (x - 127) / 128. The momentum of the running statistics is that of the other
backbones: the original's 1 % per batch is meant for ImageNet's schedules, not for a step of a few hundred batches.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from torch import Tensor, nn

from rcil.model.architecture import STAGES
from rcil.nn.architectures.depthwise import DepthwiseConv2d
from rcil.nn.architectures.stages import StageMaps
from rcil.nn.units.convnorm import SameConv2d
from rcil.nn.units.cpu_convs import PointwiseConv2d
from rcil.nn.units.layers import AnyLayers, Layers

if TYPE_CHECKING:
    from rcil.model.architecture import Architecture

NORM_EPS = 1e-3
STEM = 32
Row = tuple[int, int, int, int, int]
"""Kernel, repeats, stride, expansion, channels."""
LITE0: tuple[Row, ...] = (
    (3, 1, 1, 1, 16),
    (3, 2, 2, 6, 24),
    (5, 2, 2, 6, 40),
    (3, 3, 2, 6, 80),
    (5, 3, 1, 6, 112),
    (5, 4, 2, 6, 192),
    (3, 1, 1, 6, 320),
)
SCALING = {"efficientnet_lite0": (1.0, 1.0), "efficientnet_lite1": (1.0, 1.1), "efficientnet_lite2": (1.1, 1.2)}
"""Factors of the channels and of the repeats."""
STAGE_ENDS = (1, 2, 4, 6)  # rows after which the stride is 4, 8, 16 and 32


def lite_rows(backbone: str) -> tuple[Row, ...]:
    """The rows of a backbone: channels rounded to multiples of 8, repeats rounded up.

    The repeats of the first and the last row are not scaled, nor is the stem.
    """
    width, depth = SCALING[backbone]

    def scaled(number: int, row: Row) -> Row:
        kernel, repeats, stride, expansion, channels = row
        if 0 < number < len(LITE0) - 1:
            repeats = math.ceil(repeats * depth)
        return kernel, repeats, stride, expansion, round_channels(channels * width)

    return tuple(scaled(number, row) for number, row in enumerate(LITE0))


def round_channels(channels: float) -> int:
    """The nearest multiple of 8, at least 90 % of `channels`."""
    rounded = max(8, int(channels + 4) // 8 * 8)
    return rounded if rounded >= 0.9 * channels else rounded + 8


def conv(inputs: int, outputs: int, kernel: int, stride: int = 1, dilation: int = 1, groups: int = 1) -> nn.Conv2d:
    """A conv with "same" padding, fixed where the stride is 1 and size-dependent where it is not."""
    if stride > 1:
        return SameConv2d(inputs, outputs, kernel, stride, dilation=dilation, groups=groups, bias=False)
    if groups == inputs == outputs:
        return DepthwiseConv2d(inputs, kernel, dilation, bias=False)
    if kernel == 1:
        return PointwiseConv2d(inputs, outputs, 1, groups=groups, bias=False)
    padding = dilation * (kernel // 2)
    return nn.Conv2d(inputs, outputs, kernel, 1, padding, dilation, groups=groups, bias=False)


class InvertedResidual(nn.Module):
    """Expand 1x1, depthwise RC block, project 1x1 without activation, and a shortcut where the shape stays."""

    def __init__(
        self, layers: AnyLayers, inputs: int, outputs: int, *, kernel: int, stride: int, expansion: int, dilation: int
    ) -> None:
        super().__init__()
        hidden = inputs * expansion
        self.expand = nn.Identity() if expansion == 1 else layers.plain(conv(inputs, hidden, 1), "relu6")
        self.depthwise = layers.rc_conv(conv(hidden, hidden, kernel, stride, dilation, groups=hidden), "relu6")
        self.project = layers.plain(conv(hidden, outputs, 1))
        self.residual = stride == 1 and inputs == outputs

    def forward(self, x: Tensor) -> Tensor:
        """[N, C, H, W] -> [N, C', H', W']."""
        y: Tensor = self.project(self.depthwise(self.expand(x)))
        return x + y if self.residual else y


class EfficientNetLite(nn.Module):
    """The backbone; strides beyond the output stride become dilation."""

    def __init__(self, arch: Architecture) -> None:
        super().__init__()
        rows = lite_rows(arch.backbone)
        self.stage_channels = tuple(rows[end][-1] for end in STAGE_ENDS)
        layers = Layers.of(arch, "stage1", eps=NORM_EPS)
        self.stem = layers.plain(conv(3, STEM, 3, 2), "relu6" if arch.stem_activation else None)
        self.stages = nn.ModuleList()
        inputs, reached, dilation = STEM, 2, 1
        blocks = nn.ModuleList()
        for row, (kernel, repeats, stride, expansion, outputs) in enumerate(rows):
            if stride == 2 and reached == arch.output_stride:
                stride, dilation = 1, dilation * 2
            reached *= stride
            layers = Layers.of(arch, STAGES[len(self.stages)], eps=NORM_EPS)
            for position in range(repeats):
                blocks.append(
                    InvertedResidual(
                        layers,
                        inputs,
                        outputs,
                        kernel=kernel,
                        stride=stride if position == 0 else 1,
                        expansion=expansion,
                        dilation=dilation,
                    )
                )
                inputs = outputs
            if row in STAGE_ENDS:
                self.stages.append(blocks)
                blocks = nn.ModuleList()

    def forward(self, x: Tensor) -> StageMaps:
        """Images [N, 3, H, W] -> the last map of each stage; stage ends are linear, so before = after."""
        x = self.stem(x)
        maps: list[Tensor] = []
        for stage in self.stages:
            for block in stage.children():
                x = block(x)
            maps.append(x)
        return StageMaps(tuple(maps), tuple(maps))
