"""Local POD of PLOP, which compares means along rows and columns of cells of the squared maps.

https://arxiv.org/abs/2011.11390
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from rcil.core.errors import ConfigError
from rcil.losses.precision import full_precision

if TYPE_CHECKING:
    from collections.abc import Sequence

    from torch import Tensor


@full_precision
def local_pod_embedding(x: Tensor, scales: Sequence[int] = (1, 2, 4)) -> Tensor:
    """Row and column means of the cells of a map [N, C, H, W] as one vector per sample [N, E].

    At scale s the map is cut into s x s cells of H // s by W // s pixels; rows and columns left over at the bottom
    and right are not used. Order: scale, row of cells, column of cells, means over width [C, h], means over
    height [C, w].

    Args:
        x: The map, already squared if the loss requires it.
        scales: Numbers of cells per side.
    """
    height, width = x.shape[2:]
    if not scales or min(scales) < 1 or max(scales) > min(height, width):
        raise ConfigError(
            f"cannot cut a {height} x {width} map at scales {tuple(scales)}",
            "Scales lie between 1 and the smaller side of the map: use larger crops or fewer scales.",
        )
    parts = []
    for scale in scales:
        h, w = height // scale, width // scale
        cells = x[:, :, : h * scale, : w * scale].reshape(*x.shape[:2], scale, h, scale, w)
        cells = cells.permute(0, 2, 4, 1, 3, 5)  # [N, cell row, cell column, C, h, w]
        both = torch.cat((cells.mean(dim=5).flatten(3), cells.mean(dim=4).flatten(3)), dim=3)
        parts.append(both.flatten(1))
    return torch.cat(parts, dim=1)
