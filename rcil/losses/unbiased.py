"""The losses of MiB, which treat background as "any old or future class" in a continual step.

https://arxiv.org/abs/2002.00718
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch.nn import functional as F

from rcil.core.errors import ConfigError
from rcil.losses.class_weights import weigh_pixels
from rcil.losses.precision import full_precision
from rcil.losses.reduce import Reduction, reduce_pixels

if TYPE_CHECKING:
    from torch import Tensor


@full_precision
def unbiased_cross_entropy(
    logits: Tensor,
    labels: Tensor,
    old_classes: int,
    *,
    ignore_index: int = 255,
    mask: Tensor | None = None,
    weights: Tensor | None = None,
    reduction: Reduction = "mean_all",
) -> Tensor:
    """Cross entropy whose background probability is that of all old classes together.

    The labels of a step mark every old class as background, so the student must not be penalised for predicting the
    old class.

    Args:
        logits: [N, C, H, W].
        labels: Class ids [N, H, W]; ids below `old_classes` count as background.
        old_classes: Classes before this step, background included.
        ignore_index: Label of the pixels without loss.
        mask: Boolean [N, H, W], True where a pixel is ignored as well.
        weights: Weight of every class [C] in the loss; None weighs all pixels equally.
        reduction: See `reduce_pixels`.
    """
    check_old_classes(old_classes, logits.shape[1])
    total = logits.logsumexp(dim=1, keepdim=True)
    background = logits[:, :old_classes].logsumexp(dim=1, keepdim=True)
    log_probabilities = torch.cat((background, logits[:, old_classes:]), dim=1) - total
    labels = labels.long()  # uint8 would wrap around below
    valid = labels != ignore_index
    if mask is not None:
        valid = valid & ~mask
    target = (labels - (old_classes - 1)).clamp(min=0).where(valid, labels.new_zeros(()))
    loss = weigh_pixels(F.nll_loss(log_probabilities, target, reduction="none"), labels, weights)
    return reduce_pixels(loss, valid, reduction)


@full_precision
def unbiased_distillation(
    logits: Tensor,
    old_logits: Tensor,
    *,
    alpha: float = 1.0,
    mask: Tensor | None = None,
    reduction: Reduction = "mean_all",
) -> Tensor:
    """Distillation that compares the teacher's background with the student's background and new classes together.

    Divided by the number of old classes O, as in the code of MiB and RCIL, whose weights belong to it. The equation in
    the RCIL paper is the sum, O times as large.

    Args:
        logits: The student's logits [N, C, H, W].
        old_logits: The teacher's logits [N, O, H, W], O <= C.
        alpha: Inverse temperature of the teacher.
        mask: Boolean [N, H, W], True where a pixel is kept.
        reduction: See `reduce_pixels`.
    """
    old_classes = old_logits.shape[1]
    check_old_classes(old_classes, logits.shape[1])
    total = logits.logsumexp(dim=1, keepdim=True)
    background = torch.cat((logits[:, :1], logits[:, old_classes:]), dim=1).logsumexp(dim=1, keepdim=True)
    log_probabilities = torch.cat((background, logits[:, 1:old_classes]), dim=1) - total
    teacher = (alpha * old_logits).softmax(dim=1)
    return reduce_pixels(-(teacher * log_probabilities).mean(dim=1), mask, reduction)


def check_old_classes(old_classes: int, classes: int) -> None:
    """Raise if the teacher has no class, or more classes than the student."""
    if not 1 <= old_classes <= classes:
        raise ConfigError(
            f"{old_classes} old classes for a student with {classes}",
            "Old classes include background and are at most the student's: check the order of the logits.",
        )
