"""The two ends of every table: fine-tuning, which only learns, and joint training, which sees everything at once."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor
from torch.nn import functional as F

from rcil.data.types import IGNORE
from rcil.losses._precision import full_precision
from rcil.methods.base import LossTerms, Method, StepInfo
from rcil.nn import Maps


@full_precision
def cross_entropy(logits: Tensor, labels: Tensor) -> Tensor:
    """Mean over all pixels, ignored ones counting as 0, as the official training does; logits [N, C, H, W]."""
    return F.cross_entropy(logits, labels, ignore_index=IGNORE, reduction="none").mean()


@dataclass
class FineTuning(Method):
    """Cross entropy on the step's own labels."""

    needs_teacher: ClassVar[bool] = False

    def terms(self, new: Maps, old: Maps | None, labels: Tensor, info: StepInfo) -> LossTerms:
        """Cross entropy alone."""
        del old, info
        return LossTerms(ce=cross_entropy(new.logits, labels))


@dataclass
class Joint(FineTuning):
    """The upper bound: all classes and all images in one step."""

    sees_all_data: ClassVar[bool] = True

    @property
    def first_step(self) -> str:
        """It is the only one."""
        return "joint"
