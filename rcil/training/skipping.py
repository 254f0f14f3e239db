"""Skipping of fp16 batches that overflowed.

The largest fp16 number is 65504. Occasionally a map of one batch exceeds it, and the loss is not finite, while the next
batch is fine. Such a batch must not change the weights, and what its forward pass has already written, norm statistics
and the state of the method, is undone.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

from rcil.methods import Method

MAX_SKIPPED_IN_A_ROW = 5
"""Consecutive batches without a finite loss that are skipped; one more ends the run."""
MAX_SKIPPED = 50
"""Batches without a finite loss that are skipped per step."""
MAX_OVERFLOWS_IN_A_ROW = 30
"""Consecutive batches whose gradients overflow. Each halves the loss scale, which starts at 65536 and reaches 1 after
16; so far below 1, the gradients themselves are not finite."""


@dataclass
class Skipped:
    """How many batches of a step were skipped; part of the resume state."""

    total: int = 0
    in_a_row: int = 0
    overflows_in_a_row: int = 0

    def not_finite(self) -> bool:
        """Count a batch without a finite loss; returns False if there were too many."""
        self.total += 1
        self.in_a_row += 1
        return self.in_a_row <= MAX_SKIPPED_IN_A_ROW and self.total <= MAX_SKIPPED

    def finite(self, *, moved: bool) -> bool:
        """Count a batch with a finite loss; returns False if the weights have not `moved` for too long."""
        self.in_a_row = 0
        self.overflows_in_a_row = 0 if moved else self.overflows_in_a_row + 1
        return self.overflows_in_a_row <= MAX_OVERFLOWS_IN_A_ROW


@dataclass
class Undo:
    """A copy of what a forward pass changes: norm statistics and the state of the method."""

    model: nn.Module
    method: Method
    _state: dict[str, Any] = field(default_factory=dict)
    _copies: dict[torch.dtype, list[Tensor]] = field(default_factory=dict)

    @torch.no_grad()
    def remember(self) -> None:
        """Copy the current values; all buffers of a dtype are copied in one call."""
        self._state = self.method.state_dict()  # methods replace their tensors instead of writing into them
        for dtype, buffers in _by_dtype(self.model.buffers()).items():
            if dtype not in self._copies:
                self._copies[dtype] = [torch.empty_like(buffer) for buffer in buffers]
            torch._foreach_copy_(self._copies[dtype], buffers)

    @torch.no_grad()
    def undo(self) -> None:
        """Restore the remembered values."""
        self.method.load_state_dict(self._state)
        for dtype, buffers in _by_dtype(self.model.buffers()).items():
            torch._foreach_copy_(buffers, self._copies[dtype])


def _by_dtype(buffers: Iterable[Tensor]) -> dict[torch.dtype, list[Tensor]]:
    groups: dict[torch.dtype, list[Tensor]] = defaultdict(list)
    for buffer in buffers:
        groups[buffer.dtype].append(buffer)
    return dict(groups)


def not_finite(terms: dict[str, float]) -> list[str]:
    """Names of the loss terms that are infinite or NaN."""
    return [name for name, value in terms.items() if not math.isfinite(value)]
