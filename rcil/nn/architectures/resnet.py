"""ResNet-18/34/50/101 backbones whose 3x3 convs are RC blocks."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch.nn.functional as F
from torch import Tensor, nn

from rcil.model.architecture import STAGES
from rcil.nn.architectures.stages import StageMaps
from rcil.nn.units.layers import AnyLayers, Layers

if TYPE_CHECKING:
    from rcil.model.architecture import Architecture

DILATIONS = {32: (1, 1, 1, 1), 16: (1, 1, 1, 2), 8: (1, 1, 2, 4)}


def conv1x1(inputs: int, outputs: int, stride: int = 1) -> nn.Conv2d:
    """A 1x1 conv without bias."""
    return nn.Conv2d(inputs, outputs, 1, stride, bias=False)


def conv3x3(inputs: int, outputs: int, stride: int = 1, dilation: int = 1) -> nn.Conv2d:
    """A 3x3 conv without bias that keeps the size at stride 1."""
    return nn.Conv2d(inputs, outputs, 3, stride, dilation, dilation, bias=False)


class BasicBlock(nn.Module):
    """Two 3x3 RC blocks and a shortcut; returns the sum before its activation."""

    expansion = 1

    def __init__(self, layers: AnyLayers, inputs: int, width: int, stride: int, dilation: int) -> None:
        super().__init__()
        self.conv1 = layers.rc_conv(conv3x3(inputs, width, stride, dilation), "leaky")
        self.conv2 = layers.rc_conv(conv3x3(width, width, 1, dilation))
        self.shortcut = _shortcut(layers, inputs, width, stride)

    def forward(self, x: Tensor) -> Tensor:
        """[N, C, H, W] -> pre-activation [N, width, H', W']."""
        return self.conv2(self.conv1(x)) + self.shortcut(x)  # type: ignore[no-any-return]


class Bottleneck(nn.Module):
    """1x1, 3x3 RC block (with the stride), 1x1 and a shortcut; returns the sum before its activation."""

    expansion = 4

    def __init__(self, layers: AnyLayers, inputs: int, width: int, stride: int, dilation: int) -> None:
        super().__init__()
        outputs = width * self.expansion
        self.conv1 = layers.plain(conv1x1(inputs, width), "leaky")
        self.conv2 = layers.rc_conv(conv3x3(width, width, stride, dilation), "leaky")
        self.conv3 = layers.plain(conv1x1(width, outputs))
        self.shortcut = _shortcut(layers, inputs, outputs, stride)

    def forward(self, x: Tensor) -> Tensor:
        """[N, C, H, W] -> pre-activation [N, 4 * width, H', W']."""
        return self.conv3(self.conv2(self.conv1(x))) + self.shortcut(x)  # type: ignore[no-any-return]


def _shortcut(layers: AnyLayers, inputs: int, outputs: int, stride: int) -> nn.Module:
    """Identity where the shape stays, else a strided 1x1 projection."""
    same = stride == 1 and inputs == outputs
    return nn.Identity() if same else layers.plain(conv1x1(inputs, outputs, stride))


class ResNet(nn.Module):
    """Stem and four stages; a dilated stage keeps its size and dilates in all its blocks."""

    def __init__(self, arch: Architecture) -> None:
        super().__init__()
        block = Bottleneck if arch.bottleneck else BasicBlock
        self.slope = arch.slope
        stem = nn.Conv2d(3, arch.width, 7, stride=2, padding=3, bias=False)
        self.stem = Layers.of(arch, "stage1").plain(stem, "leaky" if arch.stem_activation else None)
        self.stages = nn.ModuleList()
        self.stage_channels = tuple(arch.width * 2**index * block.expansion for index in range(4))
        inputs = arch.width
        for index, (count, dilation) in enumerate(zip(arch.stage_blocks, DILATIONS[arch.output_stride], strict=True)):
            width, layers = arch.width * 2**index, Layers.of(arch, STAGES[index])
            blocks = nn.ModuleList()
            for position in range(count):
                stride = 2 if position == 0 and index > 0 and dilation == 1 else 1
                blocks.append(block(layers, inputs, width, stride, dilation))
                inputs = width * block.expansion
            self.stages.append(blocks)

    def forward(self, x: Tensor) -> StageMaps:
        """Images [N, 3, H, W] -> the last map of each stage, before and after its activation."""
        x = F.max_pool2d(self.stem(x), 3, stride=2, padding=1)
        before: list[Tensor] = []
        after: list[Tensor] = []
        for stage in self.stages:
            *inner, last = stage.children()
            for block in inner:
                x = F.leaky_relu(block(x), self.slope, inplace=True)
            pre = last(x)  # kept: distillation reads it
            x = F.leaky_relu(pre, self.slope)
            before.append(pre)
            after.append(x)
        return StageMaps(tuple(before), tuple(after))
