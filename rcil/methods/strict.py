"""Strict: only the rows of the new classes are trained; the old network stays bit-identical."""

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
from rcil.nn import Maps, Network
from rcil.nn.network import RowStart


@dataclass
class Strict(Method):
    """Unbiased cross entropy on new classifier rows over a frozen network.

    The logits of the old classes stay bit-identical: norms keep their statistics, branches are not merged, and the
    background row, of which new rows start as copies, is not shared. The new classes can only use existing features. A
    folded network stays folded.
    """

    needs_teacher: ClassVar[bool] = False
    needs_norms: ClassVar[bool] = False
    keeps_old: ClassVar[bool] = True
    rows: ClassVar[RowStart] = "background"

    def begin(self, model: Network, new_classes: Sequence[str]) -> Network:
        """The old network, frozen, with rows for the new classes."""
        if not new_classes:
            name = type(self).__name__.lower()
            raise ConfigError(f"method '{name}' has nothing to train without a new class", "Choose another method.")
        student = copy.deepcopy(model)
        student.grow(new_classes, self.rows)
        student.requires_grad_(False).eval()
        student.rows.train_rows(old=False, new=True)
        return student

    def set_training(self, model: Network) -> None:
        """Evaluation mode once the network is frozen, so that norm statistics and branches do not change."""
        trained = (name for name, parameter in model.named_parameters() if parameter.requires_grad)
        model.train(any(model.part_of(name) != "classifier" for name in trained))

    def terms(self, new: Maps, old: Maps | None, labels: Tensor, info: StepInfo) -> LossTerms:
        """UNCE; plain cross entropy in step 0, which trains everything."""
        if info.old == 0:
            return LossTerms(ce=cross_entropy(new.logits, labels, info.weights))
        return LossTerms(unce=step_cross_entropy(new.logits, labels, info))
