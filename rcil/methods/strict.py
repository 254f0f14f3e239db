"""Strict: the old network stays as it is, to the bit; only the rows of the new classes learn."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor

from rcil.core.errors import ConfigError
from rcil.methods.base import LossTerms, Method, StepInfo
from rcil.methods.fine_tuning import cross_entropy
from rcil.methods.mib import step_cross_entropy
from rcil.nn import Maps, Segmenter
from rcil.nn.classifier import RowStart


@dataclass
class Strict(Method):
    """Unbiased cross entropy on new classifier rows over a frozen network.

    What the classifier says of the old classes stays the same to the bit: norms keep their statistics, branches are not
    merged, the background row is not shared out. The new classes can only use what the network sees already.
    """

    needs_teacher: ClassVar[bool] = False
    rows: ClassVar[RowStart] = "background"

    def begin(self, model: Segmenter, new_classes: Sequence[str]) -> Segmenter:
        """The old network, frozen, with rows for the new classes that start as copies of background's."""
        if not new_classes:
            raise ConfigError("method 'strict' trains nothing without a new class", "Choose another method.")
        if model.arch.folded:
            raise ConfigError(
                "the classes of a folded network are one conv", "Start from the checkpoint that was folded."
            )
        student = copy.deepcopy(model)
        student.classifier = model.classifier.extended(new_classes, self.rows)
        student.requires_grad_(False).eval()
        student.classifier.groups[-1].requires_grad_(True)
        return student

    def set_training(self, model: Segmenter) -> None:
        """Evaluation mode once the network is frozen, so that neither statistics nor drawn branches move."""
        model.train(any(p.requires_grad for p in model.backbone.parameters()))

    def terms(self, new: Maps, old: Maps | None, labels: Tensor, info: StepInfo) -> LossTerms:
        """UNCE; plain cross entropy in step 0, which trains everything."""
        del old
        if info.old == 0:
            return LossTerms(ce=cross_entropy(new.logits, labels))
        return LossTerms(unce=step_cross_entropy(new.logits, labels, info))
