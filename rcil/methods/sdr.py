"""SDR: MiB's losses, and losses that shape the feature space around class prototypes."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, ClassVar

import torch
from torch import Tensor

from rcil import losses
from rcil.methods.base import LossTerms, StepInfo
from rcil.methods.mib import Mib
from rcil.nn import Maps


@dataclass
class Sdr(Mib):
    """Prototype matching, attraction, repulsion and sparsity on the decoder map.

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
        """UNCE + UNKD + the four terms; the prototypes are updated afterwards, in step 0 too."""
        terms = super().terms(new, old, labels, info)
        features = new.decoder
        completed = labels
        if old is not None and not info.domain:  # in a domain step all classes are labelled, including row 0
            completed = losses.complete_background(labels, old.logits)
        ids = losses.resize_labels(completed, (features.shape[2], features.shape[3]))
        prototypes, seen = self._stored(features, info.classes)
        means, counts = losses.class_means(features, ids, info.classes)
        if old is not None:
            is_old = torch.arange(info.classes, device=counts.device) < info.old
            located = counts * is_old
            terms["matching"] = self.matching * losses.prototype_matching(means, located, prototypes, seen)
        terms["attraction"] = self.attraction * losses.attraction(features, ids, prototypes, seen)
        terms["repulsion"] = self.repulsion * losses.repulsion(means, counts)
        terms["sparsity"] = self.sparsity * losses.sparsity(features, ids, info.classes)
        total = self.sum_over_processes(counts)
        sums = self.sum_over_processes(means.detach() * counts.unsqueeze(1))
        means = sums / total.clamp(min=1).unsqueeze(1)
        self._prototypes, self._seen = losses.update_prototypes(prototypes, seen, means, total)
        return terms

    def _stored(self, features: Tensor, classes: int) -> tuple[Tensor, Tensor]:
        """Prototypes [K, C] and their pixel counts [K], grown to the classes of this step."""
        width = features.shape[1]
        prototypes = features.new_zeros((classes, width), dtype=torch.float32)
        seen = torch.zeros(classes, dtype=torch.int64, device=features.device)
        if self._prototypes is not None and self._seen is not None:
            known = len(self._prototypes)
            prototypes[:known] = self._prototypes.to(prototypes)
            seen[:known] = self._seen.to(seen)
        return prototypes, seen

    def state_dict(self) -> dict[str, Any]:
        """Prototypes and counts."""
        return {"prototypes": self._prototypes, "seen": self._seen}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore prototypes and counts."""
        self._prototypes, self._seen = state["prototypes"], state["seen"]
