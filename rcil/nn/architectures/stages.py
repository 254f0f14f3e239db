"""The output of a backbone."""

from __future__ import annotations

from typing import NamedTuple

from torch import Tensor


class StageMaps(NamedTuple):
    """The last map of each of the four stages, [N, C_i, H_i, W_i].

    `before` the last activation is what the paper distils. `after` it is what the official code distils and what the
    next layer reads. Backbones with linear stage ends return the same maps twice.
    """

    before: tuple[Tensor, ...]
    after: tuple[Tensor, ...]
