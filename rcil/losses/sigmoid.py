"""A continual step on independent sigmoids: no class takes probability from another."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch.nn import functional as F

from rcil.losses.precision import full_precision
from rcil.losses.unbiased import check_old_classes

if TYPE_CHECKING:
    from torch import Tensor


@full_precision
def sigmoid_step(logits: Tensor, labels: Tensor, old_logits: Tensor, *, ignore_index: int = 255) -> Tensor:
    """Binary cross entropy, summed over classes: new ones learn from the labels, old ones from the old model.

    Where the labels name a class, all others are absent; where the old model called a new class background, it no
    longer does. Ignored pixels have the old model's answers alone.

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
