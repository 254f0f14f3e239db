"""Cross entropy on labels that the old model, or a memory, completes with old classes."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import torch
from torch.nn import functional as F

from rcil.losses.class_weights import weigh_pixels
from rcil.losses.precision import full_precision
from rcil.losses.pseudo import pseudo_labels
from rcil.losses.reduce import Reduction, reduce_pixels
from rcil.losses.unbiased import check_old_classes

if TYPE_CHECKING:
    from torch import Tensor

UNNAMED = -1
"""Label of pixels that are background or any old class."""


@full_precision
def completed_cross_entropy(
    logits: Tensor,
    labels: Tensor,
    old_classes: int,
    *,
    ignore_index: int = 255,
    weights: Tensor | None = None,
    reduction: Reduction = "mean_all",
) -> Tensor:
    """Plain cross entropy on labelled pixels, including background; unbiased cross entropy on `UNNAMED` ones.

    Args:
        logits: [N, C, H, W].
        labels: Class ids [N, H, W]; `UNNAMED` is background or any old class.
        old_classes: Classes before this step, background included.
        ignore_index: Label of the pixels without loss.
        weights: Weight of every class [C] in the loss; None weighs all pixels equally.
        reduction: See `reduce_pixels`.
    """
    check_old_classes(old_classes, logits.shape[1])
    together = logits[:, :old_classes].logsumexp(dim=1, keepdim=True)
    log_probabilities = torch.cat((logits, together), dim=1) - logits.logsumexp(dim=1, keepdim=True)
    valid = labels != ignore_index
    target = labels.long().masked_fill(labels == UNNAMED, logits.shape[1]).masked_fill(~valid, 0)
    loss = weigh_pixels(F.nll_loss(log_probabilities, target, reduction="none"), labels, weights)
    return reduce_pixels(loss, valid, reduction)


@full_precision
def taught_cross_entropy(
    logits: Tensor,
    labels: Tensor,
    old_logits: Tensor,
    *,
    ignore_index: int = 255,
    weights: Tensor | None = None,
    reliable: float | None = None,
    reduction: Reduction = "mean_all",
) -> Tensor:
    """Cross entropy with the labels where they name a class, and with the old model's probabilities elsewhere.

    The labels of a step name its classes wherever they occur, so background contains no new class and the old model's
    prediction is used directly. Where the labels name a class, the old model, which does not know the class and may be
    confident of another one, is ignored. Unbiased losses use neither fact.

    Args:
        logits: The student's logits [N, C, H, W].
        labels: Class ids [N, H, W]; 0 is background or any old class.
        old_logits: The teacher's logits [N, O, H, W], O <= C.
        ignore_index: Label of the pixels without loss.
        weights: Weight of every class [C] in the loss; None weighs all pixels equally.
        reliable: Multiply the loss of background by the old model's `reliability`, and ignore background of which it is
            below this number; None uses all background equally.
        reduction: See `reduce_pixels`.
    """
    old_classes = old_logits.shape[1]
    check_old_classes(old_classes, logits.shape[1])
    log_probabilities = logits.log_softmax(dim=1)
    valid = labels != ignore_index
    labels = labels.where(valid, labels.new_zeros(())).long()
    named = F.nll_loss(log_probabilities, labels, reduction="none")
    probabilities = old_logits.softmax(dim=1)
    taught = -(probabilities * log_probabilities[:, :old_classes]).sum(dim=1)
    if reliable is not None:
        trust = reliability(probabilities)
        taught = taught * trust.where(trust >= reliable, 0.0)
    return reduce_pixels(weigh_pixels(named.where(labels != 0, taught), labels, weights), valid, reduction)


@full_precision
def reliability(probabilities: Tensor) -> Tensor:
    """1 - entropy / log C [N, H, W] of class probabilities [N, C, H, W]: 1 where certain, 0 where all are equal.

    A single class is certain.
    """
    entropy: Tensor = torch.special.entr(probabilities).sum(dim=1)
    return (1 - entropy / math.log(max(probabilities.shape[1], 2))).clamp(0, 1)


@torch.no_grad()
def certain_labels(old_logits: Tensor, labels: Tensor, thresholds: Tensor, *, ignore_index: int = 255) -> Tensor:
    """Labels [N, H, W] whose background takes the old model's class where it is certain, and `UNNAMED` elsewhere.

    Where the old model is certain of background and the labels name no new class, the pixel is background.

    Args:
        old_logits: The old model's logits [N, O, H, W].
        labels: Class ids [N, H, W] of this step; labels of old classes, from a memory, are kept.
        thresholds: Largest relative entropy of every class, from an `EntropyHistogram`.
        ignore_index: Label of the pixels without loss.
    """
    named, _ = pseudo_labels(old_logits, labels, thresholds, ignore_index=ignore_index)
    named = named.masked_fill(named == ignore_index, UNNAMED)
    return torch.where(labels == 0, named, labels)
