"""The heads of DeepLab-v3 and v3+.

v3 has parallel dilated convs (RC blocks), a pooled path and one projection. v3+ (https://arxiv.org/abs/1802.02611)
refines this map at stride 4, together with an early map of the backbone.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from rcil.nn.architectures.depthwise import DepthwiseConv2d
from rcil.nn.units.cpu_convs import DilatedConv2d, PointwiseConv2d
from rcil.nn.units.layers import Layers

if TYPE_CHECKING:
    from rcil.model.architecture import Architecture

RATES = {32: (3, 6, 9), 16: (6, 12, 18), 8: (12, 24, 32)}


class DeepLabHead(nn.Module):
    """ASPP with four RC paths (1x1 and three dilated 3x3), concatenated, projected, plus the pooled path.

    The official code puts one norm over the concatenation; a norm works per channel, so a norm per path is the same.
    """

    def __init__(self, arch: Architecture, channels: Sequence[int]) -> None:
        super().__init__()
        layers, width, inputs = Layers.of(arch, "head"), arch.head_width, channels[-1]
        convs = [nn.Conv2d(inputs, width, 1, bias=False)]
        convs += [DilatedConv2d(inputs, width, 3, padding=r, dilation=r, bias=False) for r in RATES[arch.output_stride]]
        self.paths = nn.ModuleList(layers.rc_conv(conv, "leaky") for conv in convs)
        self.pool = layers.plain(nn.Conv2d(inputs, width, 1, bias=False), "leaky")
        self.project = layers.conv_sum(
            nn.Conv2d(width * len(convs), width, 1, bias=False), nn.Conv2d(width, width, 1, bias=False)
        )
        self.pool_window = arch.pool_window

    def forward(self, stages: Sequence[Tensor]) -> Tensor:
        """Maps of the stages, the last [N, C, H, W] -> decoder map before its activation [N, width, H, W]."""
        x = stages[-1]
        paths = torch.cat([path(x) for path in self.paths], dim=1)
        window = None if self.training else self.pool_window
        pooled = self.pool(pool(x, window))
        decoder: Tensor = self.project(paths, pooled)
        return decoder


class DeepLabPlusHead(nn.Module):
    """The v3 head, enlarged to stride 4, joined by the first stage's map and refined by two separable convs.

    The depthwise 3x3 convs of the refinement are RC blocks. Separable convs cost an eighth of full ones here, where
    maps are large.
    """

    def __init__(self, arch: Architecture, channels: Sequence[int]) -> None:
        super().__init__()
        layers, width, skip = Layers.of(arch, "head"), arch.head_width, arch.skip_width
        self.aspp = DeepLabHead(arch, channels)
        self.slope = arch.slope
        self.skip = layers.plain(PointwiseConv2d(channels[0], skip, 1, bias=False), "leaky")
        self.depthwise1 = layers.rc_conv(DepthwiseConv2d(width + skip, 3, 1, bias=False), "leaky")
        self.pointwise1 = layers.plain(PointwiseConv2d(width + skip, width, 1, bias=False), "leaky")
        self.depthwise2 = layers.rc_conv(DepthwiseConv2d(width, 3, 1, bias=False), "leaky")
        self.pointwise2 = layers.plain(PointwiseConv2d(width, width, 1, bias=False))

    def forward(self, stages: Sequence[Tensor]) -> Tensor:
        """Maps of the stages, the first [N, C, h, w] -> decoder map before its activation [N, width, h, w]."""
        fine = self.skip(stages[0])
        context = enlarge(F.leaky_relu(self.aspp(stages), self.slope), fine)
        x = self.pointwise1(self.depthwise1(torch.cat((context, fine), dim=1)))
        decoder: Tensor = self.pointwise2(self.depthwise2(x))
        return decoder


def enlarge(x: Tensor, like: Tensor) -> Tensor:
    """Interpolate x [N, C, h, w] to the size of `like` [N, D, H, W]; a function, so that an export sees one step."""
    return F.interpolate(x, size=like.shape[-2:], mode="bilinear", align_corners=False)


def pool(x: Tensor, window: int | None) -> Tensor:
    """Mean over the whole map, or over a sliding window.

    Args:
        x: [N, C, H, W].
        window: None gives the global mean [N, C, 1, 1]. Otherwise windows of at most this size slide over the map
            with stride 1 and the result is replicated at the borders back to [N, C, H, W]; a map that fits into one
            window has a single mean, so it also gives [N, C, 1, 1].
    """
    height, width = x.shape[-2:]
    if window is None or (window >= height and window >= width):
        return x.mean(dim=(2, 3), keepdim=True)
    kh, kw = min(window, height), min(window, width)
    top, left = (kh - 1) // 2, (kw - 1) // 2
    pooled = F.avg_pool2d(x, (kh, kw), stride=1)
    return F.pad(pooled, (left, kw - 1 - left, top, kh - 1 - top), mode="replicate")
