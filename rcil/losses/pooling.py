"""The kinds of pooling that the paper's ablation compares, on squared maps.

`average` and `channel` are those of PCD; the others are for comparison.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, get_args

import torch
from torch import Tensor
from torch.nn import functional as F

from rcil.core.errors import ConfigError, did_you_mean
from rcil.losses.maps import paired
from rcil.losses.pcd import WINDOWS, channel_distance, spatial_distance
from rcil.losses.pod import local_pod_embedding
from rcil.losses.precision import full_precision

PoolKind = Literal["average", "channel", "none", "global", "max", "strip", "local"]


@full_precision
def pcd_maps(
    new_maps: Sequence[Tensor],
    old_maps: Sequence[Tensor],
    *,
    kind: PoolKind = "average",
    windows: Sequence[int] = WINDOWS,
) -> Tensor:
    """Distance of the squared and pooled maps, averaged over maps, a scalar; see `map_distances` for the arguments."""
    return torch.stack(map_distances(new_maps, old_maps, kind=kind, windows=windows)).mean()


@full_precision
def map_distances(
    new_maps: Sequence[Tensor],
    old_maps: Sequence[Tensor],
    *,
    kind: PoolKind = "average",
    windows: Sequence[int] = WINDOWS,
) -> list[Tensor]:
    """Distance of every two squared and pooled maps, scalars.

    Args:
        new_maps: The student's maps [N, C, H, W]; extra channels are summed into the first.
        old_maps: The teacher's maps of the same layers.
        kind: `average` over windows in space, unpadded; `channel`: over three neighbouring channels; `none`: no
            pooling; `global`: one mean per channel; `max` over the windows; `strip`: means over rows and over columns;
            `local`: strips of the whole map and of 2 x 2 and 4 x 4 cells, PLOP's local POD.
        windows: Sides of the windows of `average` and `max`; one larger than the map is clipped to it.
    """
    if kind not in get_args(PoolKind):
        raise ConfigError(f"unknown pooling '{kind}'", did_you_mean(kind, get_args(PoolKind)))
    return [_distance(new, old, kind, tuple(windows)) for new, old in paired(new_maps, old_maps)]


def _distance(new: Tensor, old: Tensor, kind: PoolKind, windows: tuple[int, ...]) -> Tensor:
    match kind:
        case "average":
            return spatial_distance(new, old, windows, "valid")
        case "channel":
            return channel_distance(new, old, padding="valid")
        case "max":
            pairs = ((_max_pool(new**2, k), _max_pool(old**2, k)) for k in windows)
            return torch.stack([_norm(a - b) for a, b in pairs]).mean()
    squares = (new - old) * (new + old)
    match kind:
        case "none":
            return _norm(squares)
        case "global":
            return _norm(squares.mean(dim=(2, 3)))
        case "strip":
            return _norm(local_pod_embedding(squares, (1,)))
        case "local":
            return _norm(local_pod_embedding(squares))


def _max_pool(x: Tensor, window: int) -> Tensor:
    """Stride-1 maximum over windows that fit into the map."""
    return F.max_pool2d(x, (min(window, x.shape[2]), min(window, x.shape[3])), stride=1)


def _norm(x: Tensor) -> Tensor:
    """Mean over samples of the L2 norm [N, ...]; identical maps have gradient 0."""
    norms: Tensor = torch.linalg.vector_norm(x.flatten(1), dim=1)
    return norms.mean()
