"""The DeepLab-v3 head: parallel dilated convs (RC blocks), a pooled path, one projection."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from rcil.nn.units.layers import Layers

if TYPE_CHECKING:
    from rcil.model.architecture import Architecture

RATES = {32: (3, 6, 9), 16: (6, 12, 18), 8: (12, 24, 32)}


class DeepLabHead(nn.Module):
    """ASPP with four RC paths (1x1 and three dilated 3x3), concatenated, projected, plus the pooled path.

    The official code puts one norm over the concatenation; a norm works per channel, so a norm per path is the same.
    """

    def __init__(self, arch: Architecture, inputs: int) -> None:
        super().__init__()
        layers, width = Layers.of(arch), arch.head_width
        convs = [nn.Conv2d(inputs, width, 1, bias=False)]
        convs += [nn.Conv2d(inputs, width, 3, padding=r, dilation=r, bias=False) for r in RATES[arch.output_stride]]
        self.paths = nn.ModuleList(layers.rc_conv(conv, "leaky") for conv in convs)
        self.pool = layers.plain(nn.Conv2d(inputs, width, 1, bias=False), "leaky")
        self.project = layers.conv_sum(
            nn.Conv2d(width * len(convs), width, 1, bias=False), nn.Conv2d(width, width, 1, bias=False)
        )
        self.pool_window = arch.pool_window

    def forward(self, x: Tensor) -> Tensor:
        """Backbone map [N, C, H, W] -> decoder map before its activation [N, width, H, W]."""
        paths = torch.cat([path(x) for path in self.paths], dim=1)
        window = None if self.training else self.pool_window
        pooled = self.pool(pool(x, window))
        decoder: Tensor = self.project(paths, pooled)
        return decoder


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
