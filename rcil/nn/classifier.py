"""The incremental classifier: one 1x1 conv per step, and a class name for every row."""

from __future__ import annotations

import copy
import math
from collections import Counter
from collections.abc import Sequence
from typing import Literal

import torch
from torch import Tensor, nn

from rcil.core.errors import ConfigError
from rcil.nn.units.convnorm import conv_like

RowStart = Literal["background", "balanced", "random"]


class IncrementalClassifier(nn.Module):
    """1x1 convs whose outputs are concatenated, one per step; row i is class `names[i]`.

    Args:
        inputs: Channels of the decoder map.
        steps: Class names of each step; the very first is the background.
    """

    def __init__(self, inputs: int, steps: Sequence[Sequence[str]]) -> None:
        super().__init__()
        check_names([name for names in steps for name in names])
        self.steps = tuple(tuple(names) for names in steps)
        self.groups = nn.ModuleList(nn.Conv2d(inputs, len(names), 1) for names in self.steps)

    @property
    def names(self) -> tuple[str, ...]:
        """Class names in row order."""
        return tuple(name for names in self.steps for name in names)

    def forward(self, x: Tensor) -> Tensor:
        """Decoder map [N, C, H, W] -> logits [N, classes, H, W]."""
        logits = [group(x) for group in self.groups]
        return logits[0] if len(logits) == 1 else torch.cat(logits, dim=1)

    def rows(self) -> tuple[Tensor, Tensor]:
        """All rows as one kernel [classes, C, 1, 1] and bias [classes], detached."""
        convs = self._convs()
        return torch.cat([c.weight.detach() for c in convs]), torch.cat([_bias(c).detach() for c in convs])

    @torch.no_grad()
    def set_rows(self, weight: Tensor, bias: Tensor) -> None:
        """Write all rows, in row order; shapes as in `rows`."""
        start = 0
        for conv in self._convs():
            stop = start + conv.out_channels
            conv.weight.copy_(weight[start:stop])
            _bias(conv).copy_(bias[start:stop])
            start = stop

    def fold(self) -> IncrementalClassifier:
        """A new classifier with all rows in one conv."""
        folded = IncrementalClassifier(1, [self.names])
        conv = conv_like(self._convs()[0], *self.rows())
        conv.out_channels = len(self.names)
        folded.groups = nn.ModuleList([conv])
        return folded

    @torch.no_grad()
    def extended(self, new: Sequence[str], start: RowStart) -> IncrementalClassifier:
        """A new classifier with one more group of rows.

        Args:
            new: Names of the added classes.
            start: `background`: every new row is a copy of the background row. `balanced` (MiB): the background's
                probability is also shared evenly, b_bg - log(|new| + 1) for it and for every new row, so that old
                probabilities start unchanged. `random`: the default initialisation of the conv.
        """
        if not new:
            raise ConfigError("a step needs at least one new class", "Name the classes that this step adds.")
        grown = copy.deepcopy(self)
        check_names([*self.names, *new])
        grown.steps = (*self.steps, tuple(new))
        first = grown._convs()[0]
        group = nn.Conv2d(first.in_channels, len(new), 1).to(first.weight)
        if start == "balanced":
            _bias(first)[0] -= math.log(len(new) + 1)
        if start != "random":
            group.weight.copy_(first.weight[:1].expand_as(group.weight))
            _bias(group).copy_(_bias(first)[:1].expand_as(_bias(group)))
        grown.groups.append(group)
        return grown.train(self.training)

    def _convs(self) -> list[nn.Conv2d]:
        return [group for group in self.groups if isinstance(group, nn.Conv2d)]


def _bias(conv: nn.Conv2d) -> Tensor:
    assert conv.bias is not None
    return conv.bias


def check_names(names: Sequence[str]) -> None:
    """Raise unless all class names are present and unique; they identify rows."""
    doubled = sorted(name for name, count in Counter(names).items() if count > 1)
    if doubled:
        raise ConfigError(
            f"duplicate class names: {', '.join(map(repr, doubled))}",
            "Rows are matched by name: give every class a unique name.",
        )
    if not names or not all(name.strip() for name in names):
        raise ConfigError(f"missing class names in {list(names)!r}", "Name every class, background first.")
