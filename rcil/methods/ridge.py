"""Classifier rows by ridge regression, whose sums are kept: fitted to a new step, they still fit all earlier ones.

With inputs X [P, D + 1] (features and a 1), targets Y [P, C] and R = (X'X + ridge)^-1, the rows are W = R X'Y. A
further step changes them by R <- (R^-1 + X'X)^-1 and W <- W + R X'(Y - X W), in one pass and without earlier images.
For fixed features the result is that of one fit to the pixels of all steps. R^-1 and X'Y are kept rather than R and W:
the same recursion becomes two sums, which move with the features by two products.

Least squares give the classes of pixels, but no probabilities. So all rows are multiplied by one number, the
temperature with the smallest cross entropy on the step's pixels; what is kept does not depend on it.

After "ACIL: Analytic Class-Incremental Learning with Absolute Memorization and Privacy Protection" (NeurIPS 2022).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

import torch
from torch import Tensor
from torch.nn import functional as F

from rcil.core.errors import TrainingError
from rcil.methods.pixels import Pixels
from rcil.methods.refit import DIVERGED, importance_of
from rcil.methods.replay import drift
from rcil.model.features import FeatureStatistics, RidgeSums
from rcil.nn import Network

RIDGE = 1e-3
"""Ridge of a feature, relative to its variance in the first step."""
MIN_VARIANCE = 1e-4
"""Smallest variance in that ridge, relative to the mean of all features."""
MIN_EIGENVALUE = 1e-13
"""Smallest eigenvalue of R^-1, relative to the largest; smaller ones are rounding errors."""
SCALES = tuple(2 ** (step / 4) for step in range(41))
"""Factors of the rows that are tried."""


@dataclass(frozen=True)
class Sums:
    """What ridge regression needs to know of all pixels so far, in float64."""

    products: Tensor
    """R^-1 = X'X + ridge [D + 1, D + 1]."""
    targets: Tensor
    """X'Y [D + 1, C]."""

    @classmethod
    def start(cls, inputs: Tensor, classes: int) -> Self:
        """The ridge alone, for inputs [P, D + 1]; the constant has almost none."""
        variance = inputs.var(dim=0, correction=0)
        least = MIN_VARIANCE * variance.mean().clamp(min=MIN_VARIANCE)
        ridge = RIDGE * len(inputs) * (variance + least)
        return cls(ridge.diag(), inputs.new_zeros(inputs.shape[1], classes))

    @classmethod
    def of(cls, stored: RidgeSums, like: Tensor) -> Self:
        """What a checkpoint has stored."""
        return cls(*(torch.tensor(values).to(like) for values in stored.arrays()))

    def moved(self, change: Tensor, classes: int) -> Sums:
        """The sums of features times `change` [D, D], with columns of zeros for new classes."""
        along = F.pad(change, (0, 1, 0, 1))
        along[-1, -1] = 1.0
        targets = F.pad(self.targets, (0, classes - self.targets.shape[1]))
        return Sums(along.T @ self.products @ along, along.T @ targets)

    def plus(self, inputs: Tensor, targets: Tensor, importance: Tensor) -> Sums:
        """The sums with more pixels: inputs [P, D + 1], targets [P, C] and their importance [P]."""
        weighed = inputs.T * importance
        return Sums(self.products + weighed @ inputs, self.targets + weighed @ targets)

    def rows(self) -> Tensor:
        """The rows W [D + 1, C]; products that a damaged file has made singular give rows too."""
        values, vectors = torch.linalg.eigh(self.products)
        values = values.clamp(min=MIN_EIGENVALUE * float(values.abs().max()))
        rows: Tensor = vectors @ ((vectors.T @ self.targets) / values[:, None])
        return rows

    def stored(self) -> RidgeSums:
        """For a checkpoint."""
        return RidgeSums.of(self.products.cpu().numpy(), self.targets.cpu().numpy())


def updated(pixels: Pixels, known: FeatureStatistics | None, *, has_bias: bool = True) -> Sums:
    """The sums of a checkpoint, if it has any for these features, with further pixels.

    Args:
        pixels: Pixels of a network; `old_features` moves the known sums to its features.
        known: Statistics of the network before the step.
        has_bias: Whether the rows have biases.
    """
    features, targets = pixels.features.double(), pixels.targets.double()
    inputs = torch.cat((features, features.new_full((len(features), 1), float(has_bias))), dim=1)
    width, classes = features.shape[1], targets.shape[1]
    sums = Sums.start(inputs, classes)
    if known is not None and known.ridge is not None and known.width == width and len(known.counts) <= classes:
        change = drift(pixels)(torch.eye(width).to(features))
        sums = Sums.of(known.ridge, features).moved(change, classes)
    return sums.plus(inputs, targets, importance_of(targets))


@torch.no_grad()
def set_ridge_rows(student: Network, pixels: Pixels, known: FeatureStatistics | None) -> RidgeSums | None:
    """Set all rows of the student's classifier; returns the sums to keep. Without pixels nothing changes.

    Arguments as in `updated`.
    """
    if not len(pixels.features):
        return None
    sums = updated(pixels, known, has_bias=student.rows.has_bias)
    if not all(bool(value.isfinite().all()) for value in (sums.products, sums.targets)):
        raise TrainingError(*DIVERGED)
    rows = sums.rows().to(pixels.features)
    rows = rows * best_scale(pixels.features @ rows[:-1] + rows[-1], pixels.targets)
    student.rows.set_rows(rows[:-1].T[:, :, None, None], rows[-1])
    return sums.stored()


def best_scale(scores: Tensor, targets: Tensor) -> float:
    """The factor of scores [P, C] with the smallest balanced cross entropy with targets [P, C]."""
    importance = importance_of(targets)
    losses = [(F.cross_entropy(scores * s, targets, reduction="none") * importance).mean() for s in SCALES]
    return SCALES[int(torch.stack(losses).argmin())]
