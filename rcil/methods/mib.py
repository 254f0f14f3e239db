"""MiB: unbiased losses, which treat background as any old or future class."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor

from rcil.data.protocol import BACKGROUND
from rcil.losses import (
    UNNAMED,
    completed_cross_entropy,
    knowledge_distillation,
    unbiased_cross_entropy,
    unbiased_distillation,
)
from rcil.methods.base import LossTerms, Method, StepInfo
from rcil.methods.fine_tuning import cross_entropy
from rcil.nn import Maps
from rcil.nn.network import RowStart


def step_cross_entropy(logits: Tensor, labels: Tensor, info: StepInfo) -> Tensor:
    """UNCE on labels [N, H, W]; labels of old classes, which images of a memory have, are used directly.

    In other images no label names an old class, and background can be any of them.
    """
    if not info.memory:
        return unbiased_cross_entropy(logits, labels, info.old, weights=info.weights)
    unnamed = labels.where(labels != BACKGROUND, UNNAMED)
    return completed_cross_entropy(logits, unnamed, info.old, weights=info.weights)


def unbiased_terms(new: Maps, old: Maps | None, labels: Tensor, info: StepInfo, weight: float) -> LossTerms:
    """UNCE and weight * UNKD; plain cross entropy if no class is old, plain KD if none is new."""
    if old is None:
        return LossTerms(ce=cross_entropy(new.logits, labels, info.weights))
    if info.domain:
        return LossTerms(
            ce=cross_entropy(new.logits, labels, info.weights),
            kd=weight * knowledge_distillation(new.logits, old.logits),
        )
    return LossTerms(
        unce=step_cross_entropy(new.logits, labels, info),
        unkd=weight * unbiased_distillation(new.logits, old.logits),
    )


@dataclass
class Mib(Method):
    """Unbiased cross entropy and distillation, with balanced initial classifier rows."""

    rows: ClassVar[RowStart] = "balanced"
    weight: float = 10.0
    """Weight of the distillation; 100 for steps of a single class."""

    def terms(self, new: Maps, old: Maps | None, labels: Tensor, info: StepInfo) -> LossTerms:
        """UNCE + weight * UNKD."""
        return unbiased_terms(new, old, labels, info, self.weight)
