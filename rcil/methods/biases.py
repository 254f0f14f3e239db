"""Classifier biases set after a step, so that every class is as large as labels and old model say it is.

A short step turns the row of a new class in the right direction, but its pixels still lose against background and old
classes by a small margin; and it moves the margins among old classes. Both are mended by one number a class, which is
part of the classifier and costs nothing at inference.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import torch
from torch import Tensor

from rcil.methods.pixels import Pixels
from rcil.nn import Segmenter

MOVES = tuple(sign * size for size in (0.25, 0.5, 1.0, 2.0, 4.0) for sign in (1, -1))
"""What is tried for a bias, the smallest first."""
WORTH = 0.001
"""Mean IoU that a move must gain."""


@torch.no_grad()
def balance_biases(student: Segmenter, pixels: Pixels, rows: Sequence[int]) -> None:
    """Shift the biases of `rows` to the best mean IoU with what is most likely of every pixel; without any they stay.

    Args:
        student: After its step; its classifier is changed.
        pixels: What `look_at` took of it.
        rows: Classifier rows that may be shifted, in this order.
    """
    if not len(pixels.features):
        return
    weight, bias = student.classifier.rows()
    logits = pixels.features @ weight.flatten(1).T + bias
    shifts = best_shifts(logits, pixels.targets.argmax(dim=1), rows)
    student.classifier.set_rows(weight, bias + shifts)


def best_shifts(logits: Tensor, targets: Tensor, rows: Sequence[int]) -> Tensor:
    """What to add to logits [P, C] so that their argmax has the best mean IoU with `targets` [P]; zeros but for `rows`.

    Of all moves of a single class the best is made, until none is worth it.
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
        if gain < WORTH:
            return shifts
        shifts[row] += move
        best += gain


def _moves(
    logits: Tensor, first: tuple[Tensor, Tensor], targets: Tensor, occurring: Tensor, row: int
) -> Iterator[Tensor]:
    """The mean IoU [] that every move of one row leads to; `first` are the two largest logits and their rows.

    Numbers stay where the logits are: all moves of all rows are fetched together.
    """
    values, places = first
    ahead = (places[:, 0] == row).long()[:, None]
    rival, place = values.gather(1, ahead).squeeze(1), places.gather(1, ahead).squeeze(1)
    margin = logits[:, row] - rival
    for move in MOVES:
        yield _mean_iou(place.where(margin + move <= 0, row), targets, occurring, logits.shape[1])


def _mean_iou(predicted: Tensor, targets: Tensor, occurring: Tensor, classes: int) -> Tensor:
    """Over the classes that occur in `targets`, a scalar."""
    matrix = _counts(targets * classes + predicted, classes**2).view(classes, classes)
    true, found, both = matrix.sum(1), matrix.sum(0), matrix.diag()
    return (both[occurring] / (true + found - both)[occurring]).mean()


def _counts(ids: Tensor, size: int) -> Tensor:
    """How often each of the numbers below `size` occurs [size]; `torch.bincount` makes a GPU wait."""
    if ids.device.type == "cpu":
        return torch.bincount(ids, minlength=size)
    return ids.new_zeros(size).index_add(0, ids, torch.ones_like(ids))
