"""How the outputs of the classifier's convs add up to the logits.

Networks divide logits by a temperature, take means of heads or subtract one from another. The factors are measured,
so that the forward function may write them in any way.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from rcil.core.errors import ConfigError
from rcil.nn.attached.outputs import pick

SHIFT = 1024.0
"""What is added to the outputs of a conv, in multiples of the largest logit, so that rounding does not matter."""
TOLERANCE = 0.01
"""Largest difference between the factors of two classes, and between a factor and 1 that counts as 1."""


@torch.no_grad()
def row_scales(
    net: nn.Module, image: Tensor, rows: Sequence[str], output: str | int | None, classes: int
) -> tuple[float, ...]:
    """The factor of every conv in `rows` in the logits of the network; none if all are 1."""
    before = pick(net(image.clone()), output, classes)
    shift = SHIFT * max(1.0, float(before.abs().max()))
    scales = []
    for name in rows:
        hook = net.get_submodule(name).register_forward_hook(lambda module, inputs, made: made + shift)
        try:
            moved = pick(net(image.clone()), output, classes)
        finally:
            hook.remove()
        scales.append(_scale((moved - before) / shift, name))
    return () if all(scale == 1.0 for scale in scales) else tuple(scales)


def _scale(share: Tensor, name: str) -> float:
    """The factor of a conv, from what its shift changes [1, classes, h, w]; padding may hide it at borders."""
    of_classes = share.flatten(2)[0].median(dim=1).values
    scale = float(of_classes.median())
    if not abs(scale) > TOLERANCE or not (of_classes - scale).abs().max() <= TOLERANCE * abs(scale):
        raise ConfigError(
            f"the logits do not follow the rows of '{name}'",
            "Between the classifier and the logits there may be resizing, sums and fixed factors, and no activation.",
        )
    return 1.0 if abs(scale - 1.0) <= TOLERANCE else round(scale, 6)
