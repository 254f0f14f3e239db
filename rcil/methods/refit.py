"""Refitting of the classifier rows to fixed features, before a step, after it, and after step 0.

After a step of a few hundred iterations the rows are far from optimal: the row of a new class has barely changed, rare
classes lose every pixel, and rows of old classes belong to features that have changed. With fixed features, the optimal
rows are a convex problem of a few thousand numbers, which is solved in seconds. The rows are part of the classifier, so
this costs nothing at inference. It needs the images of the step only: the labels name the new classes, and the old
model predicts the rest.

The idea of fitting the classifier of a long-tailed task after its features is from "Decoupling Representation and
Classifier for Long-Tailed Recognition", https://arxiv.org/abs/1910.09217.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional as F

from rcil.core.errors import TrainingError
from rcil.core.log import stage
from rcil.methods.pixels import Pixels
from rcil.nn import Network

BALANCE = 0.5
"""A pixel of a class with a share s of all pixels has the weight s ** -BALANCE."""
MIN_SHARE = 1e-4
"""Smallest share of a class in that weight."""
PULL = 1e-3
"""Weight of the squared distance to the initial rows, in units of the features' standard deviations."""
REPLAY_PULL = 0.1
"""The same where features of old classes are drawn: they are an approximation, the rows were fitted to real ones."""
ITERATIONS = 100
DIVERGED = "the features of the network have diverged", "Lower training.lr and start again."


def fitted_rows(
    pixels: Pixels, weight: Tensor, bias: Tensor, *, has_bias: bool = True, pull: float = PULL
) -> tuple[Tensor, Tensor]:
    """Rows [C, D, 1, 1] and biases [C] that minimise the balanced cross entropy, close to the given ones.

    Rows without biases (`has_bias`) are fitted to features that are not centred, and keep biases of 0.
    """
    features, targets = pixels.features, pixels.targets
    mean, deviation = features.mean(dim=0) * has_bias, features.std(dim=0, correction=0) + 1e-6
    inputs = (features - mean) / deviation
    start = torch.cat((weight.flatten(1) * deviation, (bias + weight.flatten(1) @ mean)[:, None]), dim=1)
    importance = importance_of(targets)
    rows = start.clone().requires_grad_()
    optimiser = torch.optim.LBFGS([rows], max_iter=ITERATIONS, history_size=20, line_search_fn="strong_wolfe")

    def loss() -> Tensor:
        optimiser.zero_grad()
        missed = F.cross_entropy(inputs @ rows[:, :-1].T + rows[:, -1] * has_bias, targets, reduction="none")
        total = (missed * importance).mean() + pull * (rows - start)[:, :-1].square().sum()
        total.backward()  # type: ignore[no-untyped-call]
        return total

    try:
        with torch.enable_grad():
            optimiser.step(loss)  # type: ignore[no-untyped-call]
    except RuntimeError as error:  # a step overflowed
        raise TrainingError(*DIVERGED) from error
    kernel = rows.detach()[:, :-1] / deviation
    return kernel[:, :, None, None], rows.detach()[:, -1] - kernel @ mean


def importance_of(targets: Tensor) -> Tensor:
    """Weight of each pixel [P] by the shares of its classes, for targets [P, C]; the mean is 1."""
    importance = targets @ targets.mean(dim=0).clamp(min=MIN_SHARE) ** -BALANCE
    return importance / importance.mean()


@torch.no_grad()
def refit_classifier(student: Network, pixels: Pixels, *, pull: float = PULL) -> None:
    """Fit all rows of the student's classifier to pixels from `sample_pixels`; without pixels nothing changes."""
    if not len(pixels.features):
        return
    with stage("fitting of the classifier"):
        student.rows.set_rows(*fitted_rows(pixels, *student.rows.rows(), has_bias=student.rows.has_bias, pull=pull))
