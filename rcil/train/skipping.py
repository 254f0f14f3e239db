"""Batches of fp16 training that are left out because their numbers overflowed.

Half precision ends at 65504. Now and then a map of one batch exceeds that, its loss is no number, and the next batch is
fine again. Such a batch must leave no trace: neither in the weights nor in what its forward pass has already written,
the statistics of the norms and the memory of the method.
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
"""Batches without a finite loss that are skipped one after the other; one more ends the run."""
MAX_SKIPPED = 50
"""Batches without a finite loss that are skipped in a step."""
MAX_OVERFLOWS_IN_A_ROW = 30
"""Batches whose gradients overflow one after the other. Each halves the loss scale, and its start of 65536 is used up
after 16; when it is that far below 1, the gradients themselves are no numbers."""


@dataclass
class Skipped:
    """How many batches of a step were skipped; part of the resume state."""

    total: int = 0
    in_a_row: int = 0
    overflows_in_a_row: int = 0

    def not_finite(self) -> bool:
        """Count a batch without a finite loss; whether there may be one more."""
        self.total += 1
        self.in_a_row += 1
        return self.in_a_row <= MAX_SKIPPED_IN_A_ROW and self.total <= MAX_SKIPPED

    def finite(self, *, moved: bool) -> bool:
        """Count a batch with a finite loss; whether weights that have not `moved` may go on like this."""
        self.in_a_row = 0
        self.overflows_in_a_row = 0 if moved else self.overflows_in_a_row + 1
        return self.overflows_in_a_row <= MAX_OVERFLOWS_IN_A_ROW


@dataclass
class Undo:
    """What a forward pass writes, as it was before: norm statistics and the method's state."""

    model: nn.Module
    method: Method
    _state: dict[str, Any] = field(default_factory=dict)
    _copies: dict[torch.dtype, list[Tensor]] = field(default_factory=dict)

    @torch.no_grad()
    def remember(self) -> None:
        """Take the values of now; all buffers of a dtype are copied in one go."""
        self._state = self.method.state_dict()  # methods replace their tensors and do not write into them
        for dtype, buffers in _by_dtype(self.model.buffers()).items():
            if dtype not in self._copies:
                self._copies[dtype] = [torch.empty_like(buffer) for buffer in buffers]
            torch._foreach_copy_(self._copies[dtype], buffers)

    @torch.no_grad()
    def undo(self) -> None:
        """Go back to what was remembered."""
        self.method.load_state_dict(self._state)
        for dtype, buffers in _by_dtype(self.model.buffers()).items():
            torch._foreach_copy_(buffers, self._copies[dtype])


def _by_dtype(buffers: Iterable[Tensor]) -> dict[torch.dtype, list[Tensor]]:
    groups: dict[torch.dtype, list[Tensor]] = defaultdict(list)
    for buffer in buffers:
        groups[buffer.dtype].append(buffer)
    return dict(groups)


def not_finite(terms: dict[str, float]) -> list[str]:
    """Names of the loss terms that are infinite or no numbers."""
    return [name for name, value in terms.items() if not math.isfinite(value)]
