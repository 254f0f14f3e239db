"""PLOP: local POD on the features, and the old model's confident predictions as labels."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, ClassVar

import torch
from torch import Tensor
from torch.nn import functional as F

from rcil.data.protocol import BACKGROUND
from rcil.data.types import IGNORE
from rcil.losses import Convention, local_pod, pseudo_labels
from rcil.losses.precision import full_precision
from rcil.methods.base import LossTerms, Method, StepInfo
from rcil.methods.fine_tuning import cross_entropy
from rcil.methods.thresholds import entropy_thresholds
from rcil.nn import Maps, Segmenter
from rcil.nn.classifier import RowStart


@dataclass
class Plop(Method):
    """Pseudo-labels by entropy, cross entropy scaled by certainty, local POD."""

    rows: ClassVar[RowStart] = "balanced"
    factor: float = 0.01
    """Of local POD on stages and decoder (ADE20K: 1e-3)."""
    logits_factor: float = 5e-4
    """Of local POD on the low-resolution logits (ADE20K: 1e-5)."""
    median: Convention = "official"
    """How the thresholds' medians are read from their histogram."""
    floor: float = 0.001
    """Smallest threshold."""
    _thresholds: Tensor | None = field(default=None, init=False, repr=False)

    def prepare(self, batches: Iterable[tuple[Maps, Tensor]], info: StepInfo, student: Segmenter) -> None:
        """Median entropy of every old class on this step's background."""
        del student
        if info.new == 0 or info.old == 0:
            return
        self._thresholds = entropy_thresholds(batches, info, self.median, self.floor, self.sum_over_processes)

    def terms(self, new: Maps, old: Maps | None, labels: Tensor, info: StepInfo) -> LossTerms:
        """CE on completed labels + local POD; a domain step has nothing to complete."""
        if old is None:
            return LossTerms(ce=cross_entropy(new.logits, labels))
        pod = local_pod(
            new.distilled(),
            old.distilled(),
            classes=info.classes,
            new_classes=info.new or info.classes,
            factor=self.factor,
            logits_factor=self.logits_factor,
        )
        if info.domain:
            return LossTerms(ce=cross_entropy(new.logits, labels), pod=pod)
        if self._thresholds is None:
            raise RuntimeError("Plop.prepare must run before the first batch of a step")
        self._thresholds = self._thresholds.to(labels.device)  # a resumed state is on the CPU
        completed, certainty = pseudo_labels(old.logits, labels, self._thresholds)
        if info.memory:  # true labels of old classes need no teacher
            known = (labels != BACKGROUND) & (labels < info.old)
            completed = torch.where(known, labels, completed)
            certainty = certainty.where(~known.flatten(1).any(dim=1), certainty.new_ones(()))
        return LossTerms(ce=_scaled_cross_entropy(new.logits, completed, certainty), pod=pod)

    def state_dict(self) -> dict[str, Any]:
        """The thresholds."""
        return {"thresholds": self._thresholds}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore the thresholds."""
        self._thresholds = state["thresholds"]


@full_precision
def _scaled_cross_entropy(logits: Tensor, labels: Tensor, factor: Tensor) -> Tensor:
    """Mean over all pixels of cross entropy times its image's factor [N]."""
    loss = F.cross_entropy(logits, labels, ignore_index=IGNORE, reduction="none")
    return (loss * factor.view(-1, 1, 1)).mean()
