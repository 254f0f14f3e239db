"""Distillation of the old classes: LwF (softmax), ILT (also of the encoder's output) and LwF-MC (sigmoids)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor

from rcil.losses import binary_cross_entropy, encoder_mse, knowledge_distillation, sigmoid_distillation
from rcil.methods.base import LossTerms, Method, StepInfo
from rcil.methods.fine_tuning import cross_entropy
from rcil.nn import Maps


@dataclass
class Lwf(Method):
    """Cross entropy and distillation over the old classes' softmax."""

    weight: float = 100.0
    """Weight of the distillation."""

    def terms(self, new: Maps, old: Maps | None, labels: Tensor, info: StepInfo) -> LossTerms:
        """CE + weight * KD."""
        terms = LossTerms(ce=cross_entropy(new.logits, labels, info.weights))
        if old is not None:
            terms["kd"] = self.weight * knowledge_distillation(new.logits, old.logits)
        return terms


@dataclass
class Ilt(Lwf):
    """Distillation of logits and of encoder features."""

    encoder_weight: float = 100.0
    """Weight of the squared difference of the encoder outputs."""

    def terms(self, new: Maps, old: Maps | None, labels: Tensor, info: StepInfo) -> LossTerms:
        """CE + weight * KD + encoder_weight * MSE."""
        terms = super().terms(new, old, labels, info)
        if old is not None:
            terms["encoder"] = self.encoder_weight * encoder_mse(new.encoder, old.encoder)
        return terms


@dataclass
class LwfMc(Method):
    """One sigmoid per class, as in iCaRL without exemplars."""

    weighs_classes: ClassVar[bool] = False
    weight: float = 10.0
    """Weight of the distillation of the teacher's sigmoids."""

    @property
    def first_step(self) -> str:
        """Step 0 is trained with sigmoids too."""
        return "sigmoid"

    def terms(self, new: Maps, old: Maps | None, labels: Tensor, info: StepInfo) -> LossTerms:
        """BCE + weight * |O| * mean BCE with the teacher."""
        terms = LossTerms(bce=binary_cross_entropy(new.logits, labels))
        if old is not None:
            terms["kd"] = self.weight * sigmoid_distillation(new.logits, old.logits)
        return terms
