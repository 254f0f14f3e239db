"""Learning without forgetting: plain distillation of the old classes, with a softmax (LwF) or sigmoids (LwF-MC)."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from rcil.losses import binary_cross_entropy, knowledge_distillation, sigmoid_distillation
from rcil.methods.base import LossTerms, Method, StepInfo
from rcil.methods.fine_tuning import cross_entropy
from rcil.nn import Maps


@dataclass
class Lwf(Method):
    """Cross entropy and distillation over the old classes' softmax."""

    weight: float = 100.0
    """Of the distillation."""

    def terms(self, new: Maps, old: Maps | None, labels: Tensor, info: StepInfo) -> LossTerms:
        """CE + weight * KD."""
        del info
        terms = LossTerms(ce=cross_entropy(new.logits, labels))
        if old is not None:
            terms["kd"] = self.weight * knowledge_distillation(new.logits, old.logits)
        return terms


@dataclass
class LwfMc(Method):
    """One sigmoid a class, as in iCaRL without exemplars."""

    weight: float = 10.0
    """Of the teacher's sigmoids."""

    @property
    def first_step(self) -> str:
        """With sigmoids from the start."""
        return "sigmoid"

    def terms(self, new: Maps, old: Maps | None, labels: Tensor, info: StepInfo) -> LossTerms:
        """BCE + weight * |O| * mean BCE with the teacher."""
        del info
        terms = LossTerms(bce=binary_cross_entropy(new.logits, labels))
        if old is not None:
            terms["kd"] = self.weight * sigmoid_distillation(new.logits, old.logits)
        return terms
