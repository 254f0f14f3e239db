"""DFT*, direct fine-tuning of a frozen network: a linear probe for every step, which a continual method has to beat.

After "Revisiting Continual Semantic Segmentation with Pre-trained Vision Models", https://arxiv.org/abs/2508.04267
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor

from rcil.methods.base import LossTerms, StepInfo
from rcil.methods.fine_tuning import cross_entropy
from rcil.methods.strict import Strict
from rcil.nn import Maps
from rcil.nn.network import RowStart


@dataclass
class Dft(Strict):
    """Plain cross entropy on new classifier rows, which start at random, over a frozen network and frozen old rows.

    The paper makes rows for future classes before step 0 and trains them there as classes that never occur. A row of a
    checkpoint is a class with a name, so here a row is made when its step begins. With everything else frozen the loss
    is convex in the new rows: where they start decides how soon they reach its minimum, and not which it is.
    """

    rows: ClassVar[RowStart] = "random"

    def terms(self, new: Maps, old: Maps | None, labels: Tensor, info: StepInfo) -> LossTerms:
        """Cross entropy alone. Its gradient for the new rows is that of UNCE, which other rows would tell apart."""
        return LossTerms(ce=cross_entropy(new.logits, labels, info.weights))
