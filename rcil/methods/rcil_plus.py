"""RCIL with training techniques of later work; none of them changes the deployed network."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal

import torch
from pydantic import Field
from torch import Tensor

from rcil.core.errors import ConfigError
from rcil.losses import UNNAMED, certain_labels, completed_cross_entropy, sigmoid_step, taught_cross_entropy
from rcil.losses.icarl import binary_cross_entropy
from rcil.methods.base import LossTerms, StepInfo
from rcil.methods.biases import balance_biases
from rcil.methods.new_rows import RowFit
from rcil.methods.pixels import Pixels, sample_pixels
from rcil.methods.plop import entropy_thresholds
from rcil.methods.rcil import Rcil
from rcil.methods.refit import PULL, REPLAY_PULL, refit_classifier
from rcil.methods.replay import measure_features, with_drawn
from rcil.methods.ridge import set_ridge_rows
from rcil.model.features import RidgeSums
from rcil.nn import Maps, Network
from rcil.nn.fuse import fuse
from rcil.nn.regmean import check_layers, measure_fusion

EXCLUSIVE = (
    ("taught", "pseudo"),
    ("taught", "sigmoid"),
    ("refit", "sigmoid"),
    ("refit", "fit_rows"),
    ("refit", "freeze_rows"),
    ("replay", "sigmoid"),
    ("replay", "fit_rows"),
    ("replay", "freeze_rows"),
)
"""Pairs of options that exclude each other."""


@dataclass
class RcilPlus(Rcil):
    """RCIL with the old model's labels on background, a refitted classifier and fused weights, and further options.

    The defaults were chosen on held-out images (`docs/results/README.md`).
    """

    taught: bool = True
    """Train background with the old model's probabilities, instead of both unbiased losses."""
    reliable: Annotated[float, Field(ge=0, lt=1)] | None = None
    """Weigh taught background by the old model's reliability, 1 - entropy / log |O|, and ignore it where that is below
    this number; null weighs all background equally."""
    refit: bool | Literal["ridge"] = True
    """Refit all classifier rows to the current features: after step 0, and before and after every later step. `ridge`
    does so by ridge regression, whose sums over the pixels of all steps are kept in the checkpoint."""
    pseudo: bool = False
    """Background takes the old model's class where PLOP's entropy rule is certain of it, which can be background too;
    the rest keeps the unbiased loss."""
    floor: float = 0.001
    """Smallest entropy threshold of the pseudo-labels."""
    fuse: bool | Literal["regmean"] = True
    """After the step, folded weights are (1 - b) old + b new with b = sqrt(|N| / |C|), 0.5 in a domain step (EWF);
    `regmean` fuses every layer by what it reads, with b = 0.5. Not for networks that have only been trained briefly
    from random weights, whose features are still changing."""
    share: Annotated[float, Field(ge=0, le=1)] | None = None
    """Weight b of the new network in `fuse`, in place of these."""
    freeze_rows: bool = False
    """Freeze the classifier rows of old classes."""
    fit_rows: bool = False
    """Start new rows as the combination of old rows that fits the labels best (NeST)."""
    sigmoid: bool = False
    """Use one sigmoid per class, from step 0 on; old classes learn from the old model's sigmoids."""
    balance: Literal["none", "new", "all"] = "new"
    """After the step, shift the biases of new or of all classes to the best mean IoU with labels and old model."""
    replay: bool = False
    """For images that do not show the old classes: fit rows also to features of old classes, drawn from the statistics
    in the checkpoint. Old rows and norm statistics do not change during training."""
    _thresholds: Tensor | None = field(default=None, init=False, repr=False)

    def __post_init__(self) -> None:
        super().__post_init__()
        for one, other in EXCLUSIVE:
            if getattr(self, one) and getattr(self, other):
                raise ConfigError(
                    f"the options {one} and {other} exclude each other", f"Set {one} or {other} to false."
                )

        if self.reliable is not None and not self.taught:
            raise ConfigError("the option reliable needs taught", "Set taught to true, or leave reliable out.")
        self.weighs_classes = not self.sigmoid  # type: ignore[misc]

    def set_training(self, model: Network) -> None:
        """Training mode; with `replay`, norms keep their statistics, and only the rows of new classes are trained."""
        super().set_training(model)
        if self.replay and len(model.rows.steps) > 1:
            model.rows.train_rows(old=False, new=True)
            for module in model.modules():
                if getattr(module, "running_mean", None) is not None:
                    module.eval()

    @property
    def first_step(self) -> str:
        """How step 0 is trained: with sigmoids or plainly. Rows are fitted afterwards."""
        return "sigmoid" if self.sigmoid else "plain"

    def begin(self, model: Network, new_classes: Sequence[str]) -> Network:
        """RCIL's transition, with frozen old rows if requested; raises if the network cannot be fused as requested."""
        student = super().begin(model, new_classes)
        if self.fuse == "regmean":
            check_layers(student)
        if self.freeze_rows and new_classes:
            student.rows.train_rows(old=False, new=True)
        return student

    def start(
        self, student: Network, teacher: Network, info: StepInfo, images: Iterable[tuple[Tensor, Tensor]]
    ) -> None:
        """Fit the rows to the new classes, so that features are trained well from the first batch on."""
        if self.refit and info.new:
            self._refit(student, sample_pixels(student, teacher, images, with_old=self.refit == "ridge"), info)
            weight, bias = student.rows.rows()  # averaged, because processes may round differently
            count = self.sum_over_processes(torch.ones_like(bias[:1]))
            student.rows.set_rows(self.sum_over_processes(weight) / count, self.sum_over_processes(bias) / count)

    def prepare(self, batches: Iterable[tuple[Maps, Tensor]], info: StepInfo, student: Network) -> None:
        """Fit the new rows and compute the entropy thresholds in one pass."""
        if info.new == 0 or not (self.pseudo or self.fit_rows):
            return
        fit = RowFit(student.rows, self.sum_over_processes) if self.fit_rows else None
        seen = batches if fit is None else _learning(fit, batches)
        self._thresholds = entropy_thresholds(seen, info, "paper", self.floor, self.sum_over_processes)
        if fit is not None:
            fit.finish()

    def terms(self, new: Maps, old: Maps | None, labels: Tensor, info: StepInfo) -> LossTerms:
        """RCIL's terms with the old model's probabilities, with completed labels, or with sigmoids."""
        if self.sigmoid and (old is None or info.domain):  # all classes are labelled, including row 0
            terms = LossTerms(bce=binary_cross_entropy(new.logits, labels))
            return terms if old is None else LossTerms(**terms, **self.cube_terms(new, old))
        if old is None:
            return super().terms(new, old, labels, info)
        named = self._named(labels, old) if self.pseudo and not info.domain else None
        if self.sigmoid:
            known = labels if named is None else named.where(named != UNNAMED, 0)
            return LossTerms(bce=sigmoid_step(new.logits, known, old.logits), **self.cube_terms(new, old))
        if self.taught and not info.domain:
            ce = taught_cross_entropy(new.logits, labels, old.logits, weights=info.weights, reliable=self.reliable)
            return LossTerms(ce=ce, **self.cube_terms(new, old))
        terms = super().terms(new, old, labels, info)
        if named is not None:
            terms["unce"] = completed_cross_entropy(new.logits, named, info.old, weights=info.weights)
        return terms

    def _named(self, labels: Tensor, old: Maps) -> Tensor:
        """Labels completed with the classes that the old model is certain of."""
        if self._thresholds is None:
            raise RuntimeError("RcilPlus.prepare must run before the first batch of a step")
        self._thresholds = self._thresholds.to(labels.device)  # a resumed state is on the CPU
        return certain_labels(old.logits, labels, self._thresholds)

    def finish(
        self,
        student: Network,
        previous: Network | None,
        teacher: Network | None,
        info: StepInfo,
        images: Iterable[tuple[Tensor, Tensor]],
    ) -> Network:
        """Fuse with the previous network, refit the rows, then balance the biases."""
        if self.fuse and previous is not None:
            student = self._fused(student, previous, info, images)
        left_out = self.balance == "none" or info.domain or (previous is None and not self.refit)
        balanced = range(0) if left_out else range(info.old, info.classes)
        if self.refit or balanced:
            ridge = self.refit == "ridge"
            asked = None if info.domain and not ridge else teacher
            pixels = sample_pixels(student, asked, images, with_old=self.replay or ridge, teaches=not info.domain)
            sums = self._refit(student, pixels, info) if self.refit else None
            self.measured = measure_features(pixels, self.known, info.old if self.replay and info.new else 0)
            if self.measured is not None and sums is not None:
                self.measured = self.measured.model_copy(update={"ridge": sums})
            if balanced and not self.replay:
                balance_biases(student, pixels, (*balanced, *range(info.old if self.balance == "all" else 0)))
        return student

    def _fused(
        self, student: Network, previous: Network, info: StepInfo, images: Iterable[tuple[Tensor, Tensor]]
    ) -> Network:
        """Both networks in one, by one share or by what every layer reads."""
        if self.fuse == "regmean":
            layers = measure_fusion(student, previous, (pictures for pictures, _ in images))
            return fuse(student, previous, 0.5 if self.share is None else self.share, layers)
        usual = math.sqrt(info.new / info.classes) if info.new else 0.5
        return fuse(student, previous, usual if self.share is None else self.share)

    def _refit(self, student: Network, pixels: Pixels, info: StepInfo) -> RidgeSums | None:
        """Fit all rows to the pixels; with `replay` also to drawn features, and closer to the old rows.

        Returns what a ridge regression wants to keep. If it kept something before, nothing needs to be drawn.
        """
        ridge = self.refit == "ridge"
        careful = self.replay and info.new > 0 and info.old > 0
        if careful and self.known is not None and not (ridge and self.known.ridge is not None):
            pixels = with_drawn(pixels, self.known)
        if ridge:
            return set_ridge_rows(student, pixels, self.known)
        refit_classifier(student, pixels, pull=REPLAY_PULL if careful else PULL)
        return None

    def state_dict(self) -> dict[str, Any]:
        """The thresholds."""
        return {"thresholds": self._thresholds}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore the thresholds."""
        self._thresholds = state["thresholds"]


def _learning(fit: RowFit, batches: Iterable[tuple[Maps, Tensor]]) -> Iterator[tuple[Maps, Tensor]]:
    """Yield the same batches, and fit the rows to each."""
    for old, labels in batches:
        fit.learn(fit.classifier.features(old.inputs), labels)
        yield old, labels
