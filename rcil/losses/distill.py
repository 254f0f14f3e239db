"""Plain distillation of logits (LwF) and of encoder features (ILT).

https://arxiv.org/abs/1606.09282 and https://arxiv.org/abs/1907.13372
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from torch.nn import functional as F

from rcil.losses.maps import alike
from rcil.losses.precision import full_precision
from rcil.losses.reduce import Reduction, reduce_pixels
from rcil.losses.unbiased import check_old_classes

if TYPE_CHECKING:
    from torch import Tensor


@full_precision
def knowledge_distillation(
    logits: Tensor,
    old_logits: Tensor,
    *,
    alpha: float = 1.0,
    mask: Tensor | None = None,
    reduction: Reduction = "mean_all",
) -> Tensor:
    """Cross entropy from the teacher's softmax to the student's, taken over the old classes only.

    Divided by the number of old classes.

    Args:
        logits: The student's logits [N, C, H, W]; the channels of new classes are not used.
        old_logits: The teacher's logits [N, O, H, W], O <= C.
        alpha: Inverse temperature of the teacher.
        mask: Boolean [N, H, W], True where a pixel is kept.
        reduction: See `reduce_pixels`.
    """
    old_classes = old_logits.shape[1]
    check_old_classes(old_classes, logits.shape[1])
    log_probabilities = logits[:, :old_classes].log_softmax(dim=1)
    teacher = (alpha * old_logits).softmax(dim=1)
    return reduce_pixels(-(teacher * log_probabilities).mean(dim=1), mask, reduction)


@full_precision
def encoder_mse(new: Tensor, old: Tensor) -> Tensor:
    """Mean squared difference of two encoder outputs [N, C, H, W] (ILT)."""
    return F.mse_loss(*alike(new, old))
