"""Balancing of the classifier biases after a step, so that class sizes match the labels and the old model.

A short step turns the row of a new class in the right direction, but its pixels still lose against background and old
classes by a small margin, and the margins among old classes change. One number per class corrects both; it is part of
the classifier and costs nothing at inference.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import torch
from torch import Tensor

from rcil.methods.pixels import Pixels
from rcil.nn import Network

MOVES = tuple(sign * size for size in (0.25, 0.5, 1.0, 2.0, 4.0) for sign in (1, -1))
"""Shifts of a bias that are tried, the smallest first."""
MIN_GAIN = 0.001
"""Smallest gain of mean IoU for which a shift is made."""


@torch.no_grad()
def balance_biases(student: Network, pixels: Pixels, rows: Sequence[int]) -> None:
    """Shift the biases of `rows` to the best mean IoU with the likeliest class of every pixel.

    Args:
        student: The network after its step; its classifier is changed, unless there are no pixels or no biases.
        pixels: Pixels from `sample_pixels`.
        rows: Classifier rows that may be shifted, in this order.
    """
    if not len(pixels.features) or not student.rows.has_bias:
        return
    weight, bias = student.rows.rows()
    logits = pixels.features @ weight.flatten(1).T + bias
    shifts = best_shifts(logits, pixels.targets.argmax(dim=1), rows)
    student.rows.set_rows(weight, bias + shifts)


def best_shifts(logits: Tensor, targets: Tensor, rows: Sequence[int]) -> Tensor:
    """Shifts [C] of logits [P, C] whose argmax has the best mean IoU with `targets` [P]; only `rows` are shifted.

    The best shift of a single class is made repeatedly, until no shift gains enough.
    """
    shifts = logits.new_zeros(logits.shape[1])
    if not rows:
        return shifts
    occurring = (_counts(targets, logits.shape[1]) > 0).nonzero().squeeze(1)
    best = float(_mean_iou(logits.argmax(dim=1), targets, occurring, logits.shape[1]))
    tried = [(row, move) for row in rows for move in MOVES]
    while True:
        shifted = logits + shifts
        first = shifted.topk(2, dim=1)
        means = [mean for row in rows for mean in _moves(shifted, first, targets, occurring, row)]
        gains = dict(zip(tried, (mean - best for mean in torch.stack(means).tolist()), strict=True))
        (row, move), gain = max(gains.items(), key=lambda item: item[1])
        if gain < MIN_GAIN:
            return shifts
        shifts[row] += move
        best += gain


def _moves(
    logits: Tensor, first: tuple[Tensor, Tensor], targets: Tensor, occurring: Tensor, row: int
) -> Iterator[Tensor]:
    """The mean IoU [] after every shift of one row; `first` are the two largest logits and their rows.

    Results stay on the device of the logits and are fetched together for all rows.
    """
    values, classes = first
    ahead = (classes[:, 0] == row).long()[:, None]
    rival, other = values.gather(1, ahead).squeeze(1), classes.gather(1, ahead).squeeze(1)
    margin = logits[:, row] - rival
    for move in MOVES:
        yield _mean_iou(other.where(margin + move <= 0, row), targets, occurring, logits.shape[1])


def _mean_iou(predicted: Tensor, targets: Tensor, occurring: Tensor, classes: int) -> Tensor:
    """Over the classes that occur in `targets`, a scalar."""
    matrix = _counts(targets * classes + predicted, classes**2).view(classes, classes)
    true, found, both = matrix.sum(1), matrix.sum(0), matrix.diag()
    return (both[occurring] / (true + found - both)[occurring]).mean()


def _counts(ids: Tensor, size: int) -> Tensor:
    """Counts of the numbers below `size`, [size]; `torch.bincount` would synchronise a GPU with the host."""
    if ids.device.type == "cpu":
        return torch.bincount(ids, minlength=size)
    return ids.new_zeros(size).index_add(0, ids, torch.ones_like(ids))
