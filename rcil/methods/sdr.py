"""SDR: MiB's losses, and losses that shape the feature space around class prototypes."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, ClassVar

import torch
from torch import Tensor

from rcil import losses
from rcil.core.errors import TrainingError
from rcil.data.protocol import BACKGROUND
from rcil.methods.base import LossTerms, StepInfo
from rcil.methods.mib import Mib
from rcil.nn import Maps


@dataclass
class Sdr(Mib):
    """Prototype matching, attraction, repulsion and sparsity on the encoder's output, as in the published code.

    In the labels of a class step, background is any old class. So it has no prototype there: it is left out of matching
    and attraction. Only matching looks for old classes, where the old model predicts them.

    The processes of a run share the prototypes. The other terms only compare classes within one process.
    """

    carries_over: ClassVar[bool] = True
    weight: float = 100.0
    matching: float = 1e-2
    attraction: float = 1e-3
    repulsion: float = 1e-3
    sparsity: float = 1e-3
    _prototypes: Tensor | None = field(default=None, init=False, repr=False)
    _seen: Tensor | None = field(default=None, init=False, repr=False)

    @property
    def first_step(self) -> str:
        """Step 0 also collects prototypes."""
        return "prototypes"

    def terms(self, new: Maps, old: Maps | None, labels: Tensor, info: StepInfo) -> LossTerms:
        """UNCE + UNKD and, after step 0, the four terms; the prototypes are updated before, in step 0 too."""
        terms = super().terms(new, old, labels, info)
        features, size = new.encoder, (new.encoder.shape[2], new.encoder.shape[3])
        ids = losses.resize_labels(labels, size)
        means, counts = losses.class_means(features, ids, info.classes)
        row = torch.arange(info.classes, device=counts.device)
        # Step 0 collects a prototype of row 0 as well, which domain steps use: there all classes are labelled.
        described = row >= (0 if info.domain or old is None else BACKGROUND + 1)
        prototypes, seen = self._updated(means.detach(), counts * described)
        if old is None:
            return terms
        completed = labels if info.domain else losses.complete_background(labels, old.logits)
        located, pixels = losses.class_means(features, losses.resize_labels(completed, size), info.classes)
        seen = seen * described
        terms["matching"] = self.matching * losses.prototype_matching(
            located, pixels * (row < info.old), prototypes, seen
        )
        terms["attraction"] = self.attraction * losses.attraction(features, ids, prototypes, seen)
        terms["repulsion"] = self.repulsion * losses.repulsion(means, counts)
        terms["sparsity"] = self.sparsity * losses.sparsity(features, ids, info.classes)
        return terms

    def _updated(self, means: Tensor, counts: Tensor) -> tuple[Tensor, Tensor]:
        """Update prototypes [K, C] and their pixel counts [K] with the class means of a batch of all processes."""
        prototypes, seen = torch.zeros_like(means), torch.zeros_like(counts)
        if self._prototypes is not None and self._seen is not None:
            known, width = self._prototypes.shape
            if width != means.shape[1]:
                raise TrainingError(
                    f"the stored prototypes of SDR have {width} channels, the encoder's output {means.shape[1]}",
                    "An earlier version took them from the decoder: start the run again in another folder.",
                )
            prototypes[:known] = self._prototypes.to(prototypes)
            seen[:known] = self._seen.to(seen)
        total = self.sum_over_processes(counts)
        sums = self.sum_over_processes(means * counts.unsqueeze(1))
        means = sums / total.clamp(min=1).unsqueeze(1)
        self._prototypes, self._seen = losses.update_prototypes(prototypes, seen, means, total)
        return self._prototypes, self._seen

    def state_dict(self) -> dict[str, Any]:
        """Prototypes and counts."""
        return {"prototypes": self._prototypes, "seen": self._seen}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore prototypes and counts."""
        self._prototypes, self._seen = state["prototypes"], state["seen"]
