"""What a backbone returns."""

from __future__ import annotations

from typing import NamedTuple

from torch import Tensor


class StageMaps(NamedTuple):
    """The last map of each of the four stages, [N, C_i, H_i, W_i].

    `before` is what the paper distils, `after` (the last activation) what the official code does and what the next
    layer reads. Backbones with linear stage ends give the same maps twice.
    """

    before: tuple[Tensor, ...]
    after: tuple[Tensor, ...]
