"""Losses on one sigmoid per class, as in iCaRL and LwF-MC: labels, distillation, and both in a continual step.

https://arxiv.org/abs/1611.07725
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch.nn import functional as F

from rcil.losses.precision import full_precision
from rcil.losses.reduce import Reduction, reduce_pixels
from rcil.losses.unbiased import check_old_classes

if TYPE_CHECKING:
    from torch import Tensor


@full_precision
def binary_cross_entropy(
    logits: Tensor, labels: Tensor, *, ignore_index: int = 255, reduction: Reduction = "mean_all"
) -> Tensor:
    """One-against-all cross entropy, summed over classes.

    Args:
        logits: [N, C, H, W].
        labels: Class ids [N, H, W].
        ignore_index: Label of the pixels without loss.
        reduction: See `reduce_pixels`.
    """
    valid = labels != ignore_index
    index = labels.where(valid, labels.new_zeros(())).long().unsqueeze(1)
    target = torch.zeros_like(logits).scatter_(1, index, valid.unsqueeze(1).to(logits.dtype))
    return reduce_pixels(_sum_over_classes(logits, target), valid, reduction)


@full_precision
def sigmoid_distillation(logits: Tensor, old_logits: Tensor) -> Tensor:
    """|O| times the mean binary cross entropy of the old classes with the teacher's sigmoid.

    Args:
        logits: The student's logits [N, C, H, W]; the channels of new classes are not used.
        old_logits: The teacher's logits [N, O, H, W], O <= C.
    """
    old_classes = old_logits.shape[1]
    check_old_classes(old_classes, logits.shape[1])
    old = logits[:, :old_classes]
    # |O| times the mean over classes and pixels is the mean over pixels of the sum over classes.
    return _sum_over_classes(old, old_logits.sigmoid().to(old.dtype)).mean()


@full_precision
def sigmoid_step(logits: Tensor, labels: Tensor, old_logits: Tensor, *, ignore_index: int = 255) -> Tensor:
    """Binary cross entropy, summed over classes: new classes learn from the labels, old ones from the old model.

    Where the labels name a class, the target of all other classes is 0, including the background that the old model
    may predict there. Ignored pixels learn from the old model only.

    Args:
        logits: The student's logits [N, C, H, W].
        labels: Class ids [N, H, W]; 0 is background or any old class.
        old_logits: The teacher's logits [N, O, H, W], O <= C.
        ignore_index: Label of the pixels without annotation.
    """
    old_classes = old_logits.shape[1]
    check_old_classes(old_classes, logits.shape[1])
    known = (labels != ignore_index) & (labels > 0)
    index = labels.where(known, labels.new_zeros(())).long().unsqueeze(1)
    named = torch.zeros_like(logits).scatter_(1, index, 1.0)
    taught = torch.zeros_like(logits)
    taught[:, :old_classes] = old_logits.sigmoid().to(logits.dtype)
    target = torch.where(known.unsqueeze(1), named, taught)
    weight = torch.ones_like(logits)
    weight[:, old_classes:] = (labels != ignore_index).unsqueeze(1).to(logits.dtype)
    loss = F.binary_cross_entropy_with_logits(logits, target, weight, reduction="none")
    return loss.sum(dim=1).mean()


def _sum_over_classes(logits: Tensor, target: Tensor) -> Tensor:
    """Binary cross entropy per pixel [N, H, W]."""
    return F.binary_cross_entropy_with_logits(logits, target, reduction="none").sum(dim=1)
