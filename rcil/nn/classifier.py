"""The incremental classifier: one conv per step, and a class name for every row."""

from __future__ import annotations

import copy
import math
from collections import Counter
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from rcil.core.errors import ConfigError
from rcil.nn.network import RowStart
from rcil.nn.units.convnorm import GEOMETRY, conv_like


class IncrementalClassifier(nn.Module):
    """Convs whose outputs are concatenated, one per step; row i is class `names[i]`.

    Ours are 1x1 convs with biases. The classifier of an attached network can have another kernel, or no bias.

    Args:
        inputs: Channels of the decoder map.
        steps: Class names of each step; the very first is the background.
    """

    def __init__(self, inputs: int, steps: Sequence[Sequence[str]]) -> None:
        super().__init__()
        check_names([name for names in steps for name in names])
        self.steps = tuple(tuple(names) for names in steps)
        self.groups = nn.ModuleList(nn.Conv2d(inputs, len(names), 1) for names in self.steps)

    @classmethod
    def of(cls, conv: nn.Conv2d, names: Sequence[str]) -> IncrementalClassifier:
        """The classifier of one step with the rows of an existing conv, which is not copied."""
        classifier = cls(1, [names])
        classifier.groups = nn.ModuleList([conv])
        return classifier.train(conv.training)

    def __getattr__(self, name: str) -> Any:
        """The geometry of the convs, which modules of other libraries may ask for."""
        if name in GEOMETRY and name != "groups":  # which are the convs themselves
            return len(self.names) if name == "out_channels" else getattr(self.groups[0], name)
        return super().__getattr__(name)

    @property
    def names(self) -> tuple[str, ...]:
        """Class names in row order."""
        return tuple(name for names in self.steps for name in names)

    @property
    def has_bias(self) -> bool:
        """Whether the rows have biases."""
        return self._convs()[0].bias is not None

    def forward(self, x: Tensor) -> Tensor:
        """Decoder map [N, C, H, W] -> logits [N, classes, H, W]."""
        logits = [group(x) for group in self.groups]
        return logits[0] if len(logits) == 1 else torch.cat(logits, dim=1)

    def rows(self) -> tuple[Tensor, Tensor]:
        """All rows as one kernel [classes, F, 1, 1] over `features` and biases [classes], detached."""
        weight, bias = self.kernel()
        return weight.flatten(1)[:, :, None, None], weight.new_zeros(len(weight)) if bias is None else bias

    def kernel(self) -> tuple[Tensor, Tensor | None]:
        """All rows as one kernel [classes, C, kh, kw] and biases [classes], detached."""
        convs = self._convs()
        weight = torch.cat([c.weight.detach() for c in convs])
        return weight, torch.cat([_bias(c).detach() for c in convs]) if self.has_bias else None

    @torch.no_grad()
    def set_rows(self, weight: Tensor, bias: Tensor | None) -> None:
        """Write all rows, in row order; shapes as in `rows` or as in `kernel`. Rows without biases get none."""
        start = 0
        for conv in self._convs():
            stop = start + conv.out_channels
            conv.weight.copy_(weight[start:stop].reshape(conv.weight.shape))
            if conv.bias is not None and bias is not None:
                conv.bias.copy_(bias[start:stop])
            start = stop

    def features(self, inputs: Sequence[Tensor]) -> Tensor:
        """The input [N, C, h, w]; for a kernel above 1x1, the patch [N, C kh kw, h', w'] that every output reads."""
        (x,) = inputs
        conv = self._convs()[0]
        if conv.kernel_size == (1, 1) and conv.stride == (1, 1) and not any(conv._reversed_padding_repeated_twice):
            return x
        mode = "constant" if conv.padding_mode == "zeros" else conv.padding_mode
        x = F.pad(x, conv._reversed_padding_repeated_twice, mode=mode)
        patches = F.unfold(x, conv.kernel_size, conv.dilation, 0, conv.stride)
        reach = [d * (k - 1) for d, k in zip(conv.dilation, conv.kernel_size, strict=True)]
        sides = [(x.shape[2 + axis] - reach[axis] - 1) // conv.stride[axis] + 1 for axis in (0, 1)]
        return patches.view(len(x), -1, *sides)

    def train_rows(self, *, old: bool, new: bool) -> None:
        """Whether rows of earlier steps and of the last step take gradients."""
        *earlier, last = self._convs()
        for conv in earlier:
            conv.requires_grad_(old)
        last.requires_grad_(new)

    def fold(self) -> IncrementalClassifier:
        """A new classifier with all rows in one conv."""
        conv = conv_like(self._convs()[0], *self.kernel())
        conv.out_channels = len(self.names)
        return IncrementalClassifier.of(conv, self.names)

    @torch.no_grad()
    def extended(self, new: Sequence[str], start: RowStart, scale: float = 1.0) -> IncrementalClassifier:
        """A new classifier with one more group of rows.

        Args:
            new: Names of the added classes.
            start: `background`: every new row is a copy of the background row. `balanced` (MiB): the background's
                probability is also shared evenly, b_bg - log(|new| + 1) for it and for every new row, so that old
                probabilities start unchanged. `random`: the default initialisation of the conv.
            scale: The factor of this classifier's outputs in the logits.
        """
        if not new:
            raise ConfigError("a step needs at least one new class", "Name the classes that this step adds.")
        grown = copy.deepcopy(self)
        check_names([*self.names, *new])
        grown.steps = (*self.steps, tuple(new))
        first = grown._convs()[0]
        group = more_rows(first, len(new))
        if start == "balanced" and self.has_bias:
            _bias(first)[0] -= math.log(len(new) + 1) / scale
        if start != "random":
            copy_row(first, group)
        grown.groups.append(group)
        return grown.train(self.training)

    def _convs(self) -> list[nn.Conv2d]:
        return [group for group in self.groups if isinstance(group, nn.Conv2d)]


def more_rows(conv: nn.Conv2d, count: int) -> nn.Conv2d:
    """A conv with the geometry of `conv` and this many outputs, with the default initialisation."""
    group = copy.deepcopy(conv).requires_grad_(True)
    group.out_channels = count
    group.weight = nn.Parameter(conv.weight.new_empty(count, *conv.weight.shape[1:]))
    if conv.bias is not None:
        group.bias = nn.Parameter(conv.bias.new_empty(count))
    group.reset_parameters()
    return group


@torch.no_grad()
def copy_row(source: nn.Conv2d, target: nn.Conv2d) -> None:
    """Set every row of `target` to the first row of `source`, the background."""
    target.weight.copy_(source.weight[:1].expand_as(target.weight))
    if target.bias is not None:
        target.bias.copy_(_bias(source)[:1].expand_as(target.bias))


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
