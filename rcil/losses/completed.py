"""Cross entropy on labels and what is known of old classes: by the old model, where it is sure, or by a memory."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch.nn import functional as F

from rcil.losses.precision import full_precision
from rcil.losses.pseudo import pseudo_labels
from rcil.losses.reduction import Reduction, reduce_pixels
from rcil.losses.unbiased import check_old_classes

if TYPE_CHECKING:
    from torch import Tensor

UNNAMED = -1
"""The label of pixels that are background or of any old class."""


@full_precision
def completed_cross_entropy(
    logits: Tensor, labels: Tensor, old_classes: int, *, ignore_index: int = 255, reduction: Reduction = "mean_all"
) -> Tensor:
    """Plain cross entropy where a class is named, background among them; the unbiased one on what has no name.

    Args:
        logits: [N, C, H, W].
        labels: Class ids [N, H, W]; `UNNAMED` is background or any old class.
        old_classes: Classes before this step, background included.
        ignore_index: Label of the pixels without loss.
        reduction: See `reduce_pixels`.
    """
    check_old_classes(old_classes, logits.shape[1])
    together = logits[:, :old_classes].logsumexp(dim=1, keepdim=True)
    log_probabilities = torch.cat((logits, together), dim=1) - logits.logsumexp(dim=1, keepdim=True)
    valid = labels != ignore_index
    target = labels.long().masked_fill(labels == UNNAMED, logits.shape[1]).masked_fill(~valid, 0)
    return reduce_pixels(F.nll_loss(log_probabilities, target, reduction="none"), valid, reduction)


@full_precision
def taught_cross_entropy(
    logits: Tensor, labels: Tensor, old_logits: Tensor, *, ignore_index: int = 255, reduction: Reduction = "mean_all"
) -> Tensor:
    """Cross entropy to the labels where they name a class, to the old model's probabilities elsewhere.

    The labels of a step name its classes wherever they are, so what they call background is of no new class, and the
    old model's answer can be taken as it is; and where they name one, the old model, which does not know it and may be
    sure of another, has no say. Unbiased losses use neither.

    Args:
        logits: The student's logits [N, C, H, W].
        labels: Class ids [N, H, W]; 0 is background or any old class.
        old_logits: The teacher's logits [N, O, H, W], O <= C.
        ignore_index: Label of the pixels without loss.
        reduction: See `reduce_pixels`.
    """
    old_classes = old_logits.shape[1]
    check_old_classes(old_classes, logits.shape[1])
    log_probabilities = logits.log_softmax(dim=1)
    valid = labels != ignore_index
    labels = labels.where(valid, labels.new_zeros(())).long()
    named = F.nll_loss(log_probabilities, labels, reduction="none")
    taught = -(old_logits.softmax(dim=1) * log_probabilities[:, :old_classes]).sum(dim=1)
    return reduce_pixels(named.where(labels != 0, taught), valid, reduction)


@torch.no_grad()
def certain_labels(old_logits: Tensor, labels: Tensor, thresholds: Tensor, *, ignore_index: int = 255) -> Tensor:
    """Labels [N, H, W] whose background is named where the old model is certain, and `UNNAMED` elsewhere.

    Of what it is certain to be background, the labels say that it is no new class: then it is background indeed.

    Args:
        old_logits: The old model's logits [N, O, H, W].
        labels: Class ids [N, H, W] of this step; those of old classes, which a memory knows, are kept.
        thresholds: Largest relative entropy of every class, from an `EntropyHistogram`.
        ignore_index: Label of the pixels without loss.
    """
    named, _ = pseudo_labels(old_logits, labels, thresholds, ignore_index=ignore_index)
    named = named.masked_fill(named == ignore_index, UNNAMED)
    return torch.where(labels == 0, named, labels)
