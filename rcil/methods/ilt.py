"""ILT: LwF that also holds the encoder's output in place."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from rcil.losses import encoder_mse
from rcil.methods.base import LossTerms, StepInfo
from rcil.methods.lwf import Lwf
from rcil.nn import Maps


@dataclass
class Ilt(Lwf):
    """Distillation of logits and of encoder features."""

    encoder_weight: float = 100.0
    """Of the squared difference of the encoders' outputs."""

    def terms(self, new: Maps, old: Maps | None, labels: Tensor, info: StepInfo) -> LossTerms:
        """CE + weight * KD + encoder_weight * MSE."""
        terms = super().terms(new, old, labels, info)
        if old is not None:
            terms["encoder"] = self.encoder_weight * encoder_mse(new.encoder, old.encoder)
        return terms
