"""PLOP: local POD on the features, and labels completed with the old model's confident predictions."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal

import torch
from torch import Tensor
from torch.nn import functional as F

from rcil.core.errors import ConfigError
from rcil.data.protocol import BACKGROUND
from rcil.data.types import IGNORE
from rcil.losses import Convention, EntropyHistogram, map_distances, pseudo_labels
from rcil.losses.class_weights import weigh_pixels
from rcil.losses.maps import mean_of_layers
from rcil.losses.precision import full_precision
from rcil.methods.base import LossTerms, Method, StepInfo
from rcil.methods.fine_tuning import cross_entropy
from rcil.nn import Maps, Network
from rcil.nn.network import RowStart


@dataclass
class Plop(Method):
    """Pseudo-labels by entropy, cross entropy scaled by certainty, local POD."""

    rows: ClassVar[RowStart] = "balanced"
    factor: float = 0.01
    """Weight of local POD on stages and decoder (presets: ADE20K 1e-3, Cityscapes 1e-4)."""
    logits_factor: float = 5e-4
    """Weight of local POD on the low-resolution logits (presets: ADE20K 1e-5, Cityscapes 1e-3 or 1e-4)."""
    pooling: Literal["local", "average", "none", "global", "max"] = "local"
    """Pooling of the maps before they are compared: PLOP's strips of cells, or the RCIL paper's alternatives."""
    median: Convention = "official"
    """How the medians for the thresholds are computed from the histogram."""
    floor: float = 0.001
    """Smallest entropy threshold."""
    _thresholds: Tensor | None = field(default=None, init=False, repr=False)

    def prepare(self, batches: Iterable[tuple[Maps, Tensor]], info: StepInfo, student: Network) -> None:
        """Compute the median entropy of every old class on this step's background."""
        if info.new == 0 or info.old == 0:
            return
        self._thresholds = entropy_thresholds(batches, info, self.median, self.floor, self.sum_over_processes)

    def terms(self, new: Maps, old: Maps | None, labels: Tensor, info: StepInfo) -> LossTerms:
        """CE on completed labels + local POD; a domain step has nothing to complete."""
        if old is None:
            return LossTerms(ce=cross_entropy(new.logits, labels, info.weights))
        distances = map_distances(new.distilled(), old.distilled(), kind=self.pooling)
        pod = mean_of_layers(distances, self.factor, self.logits_factor, info.schedule)
        if info.domain:
            return LossTerms(ce=cross_entropy(new.logits, labels, info.weights), pod=pod)
        if self._thresholds is None:
            raise RuntimeError("Plop.prepare must run before the first batch of a step")
        self._thresholds = self._thresholds.to(labels.device)  # a resumed state is on the CPU
        completed, certainty = pseudo_labels(old.logits, labels, self._thresholds)
        if info.memory:  # labels of old classes from the memory take precedence
            known = (labels != BACKGROUND) & (labels < info.old)
            completed = torch.where(known, labels, completed)
            certainty = certainty.where(~known.flatten(1).any(dim=1), certainty.new_ones(()))
        return LossTerms(ce=_scaled_cross_entropy(new.logits, completed, certainty, info.weights), pod=pod)

    def state_dict(self) -> dict[str, Any]:
        """The thresholds."""
        return {"thresholds": self._thresholds}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore the thresholds."""
        self._thresholds = state["thresholds"]


def entropy_thresholds(
    batches: Iterable[tuple[Maps, Tensor]],
    info: StepInfo,
    convention: Convention,
    floor: float,
    sum_over_processes: Callable[[Tensor], Tensor],
) -> Tensor:
    """Thresholds [classes]: the median entropy of every class, below which a prediction counts as certain.

    Args:
        batches: The teacher's maps and the labels [N, H, W] of every training batch.
        info: The step.
        convention: How the medians are computed from the histogram.
        floor: Smallest threshold.
        sum_over_processes: Sums a tensor over the processes of a run.
    """
    histogram: EntropyHistogram | None = None
    for old, labels in batches:
        histogram = histogram or EntropyHistogram(info.classes, device=old.logits.device)
        histogram.update(old.logits, labels)
    if histogram is None:
        raise ConfigError("no batches to compute entropy thresholds from", "Add training images to the step.")
    histogram.counts = sum_over_processes(histogram.counts)
    return histogram.thresholds(convention, floor)


@full_precision
def _scaled_cross_entropy(logits: Tensor, labels: Tensor, factor: Tensor, weights: Tensor | None) -> Tensor:
    """Mean over all pixels of cross entropy times the factor of its image [N] and the weight of its class [C]."""
    loss = F.cross_entropy(logits, labels, ignore_index=IGNORE, reduction="none")
    return (weigh_pixels(loss, labels, weights) * factor.view(-1, 1, 1)).mean()
