"""The lower and upper bounds: fine-tuning on new data only, and joint training on all data at once."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor
from torch.nn import functional as F

from rcil.data.types import IGNORE
from rcil.losses.class_weights import weigh_pixels
from rcil.losses.precision import full_precision
from rcil.methods.base import LossTerms, Method, StepInfo
from rcil.methods.biases import balance_biases
from rcil.methods.pixels import sample_pixels
from rcil.methods.refit import refit_classifier
from rcil.methods.replay import measure_features
from rcil.nn import Maps, Network


@full_precision
def cross_entropy(logits: Tensor, labels: Tensor, weights: Tensor | None = None) -> Tensor:
    """Mean over all pixels, ignored ones counting as 0, as the official training does.

    Args:
        logits: [N, C, H, W].
        labels: Class ids [N, H, W]; 255 is ignored.
        weights: Weight of every class [C]; None weighs all pixels equally.
    """
    loss = F.cross_entropy(logits, labels, ignore_index=IGNORE, reduction="none")
    return weigh_pixels(loss, labels, weights).mean()


@dataclass
class FineTuning(Method):
    """Cross entropy on the step's own labels."""

    needs_teacher: ClassVar[bool] = False

    def terms(self, new: Maps, old: Maps | None, labels: Tensor, info: StepInfo) -> LossTerms:
        """Cross entropy alone."""
        return LossTerms(ce=cross_entropy(new.logits, labels, info.weights))


@dataclass
class Joint(FineTuning):
    """The upper bound: all classes and all images in one step."""

    sees_all_data: ClassVar[bool] = True
    refit: bool = False
    """Refit the classifier to the features after training, as `rcil-plus` does."""

    @property
    def first_step(self) -> str:
        """Joint training has a single step."""
        return "joint"

    def finish(
        self,
        student: Network,
        previous: Network | None,
        teacher: Network | None,
        info: StepInfo,
        images: Iterable[tuple[Tensor, Tensor]],
    ) -> Network:
        """The student, with a refitted classifier if requested."""
        if self.refit:
            pixels = sample_pixels(student, None, images)
            refit_classifier(student, pixels)
            balance_biases(student, pixels, range(info.classes))
            self.measured = measure_features(pixels)
        return student
