"""EfficientNet-lite0: a backbone for edge devices, RC on its depthwise convs.

It has ReLU6, no squeeze-and-excitation, TensorFlow's "same" padding and TensorFlow's norm eps, which reproduces the
published ImageNet weights. Inputs are (x - 127) / 128. The momentum of the running statistics is that of the other
backbones: the original's 1 % per batch is meant for ImageNet's schedules, not for a step of a few hundred batches.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from torch import Tensor, nn

from rcil.nn.architectures.depthwise import DepthwiseConv2d
from rcil.nn.architectures.stages import StageMaps
from rcil.nn.units.convnorm import SameConv2d
from rcil.nn.units.cpu_convs import PointwiseConv2d
from rcil.nn.units.layers import AnyLayers, Layers

if TYPE_CHECKING:
    from rcil.model.architecture import Architecture

NORM_EPS = 1e-3
STEM = 32
# kernel, repeats, stride, expansion, channels
LITE0 = (
    (3, 1, 1, 1, 16),
    (3, 2, 2, 6, 24),
    (5, 2, 2, 6, 40),
    (3, 3, 2, 6, 80),
    (5, 3, 1, 6, 112),
    (5, 4, 2, 6, 192),
    (3, 1, 1, 6, 320),
)
STAGE_ENDS = (1, 2, 4, 6)  # rows of LITE0 after which the stride is 4, 8, 16 and 32


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


class EfficientNetLite0(nn.Module):
    """The backbone; strides beyond the output stride become dilation."""

    out_channels = LITE0[-1][-1]

    def __init__(self, arch: Architecture) -> None:
        super().__init__()
        layers = Layers.of(arch, eps=NORM_EPS)
        self.stem = layers.plain(conv(3, STEM, 3, 2), "relu6" if arch.stem_activation else None)
        self.stages = nn.ModuleList()
        inputs, reached, dilation = STEM, 2, 1
        blocks = nn.ModuleList()
        for row, (kernel, repeats, stride, expansion, outputs) in enumerate(LITE0):
            if stride == 2 and reached == arch.output_stride:
                stride, dilation = 1, dilation * 2
            reached *= stride
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
