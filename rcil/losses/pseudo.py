"""PLOP's pseudo-labels: background takes the old model's prediction where the old model is certain.

https://arxiv.org/abs/2011.11390

Certain means that the normalised entropy lies below a threshold per class, the median over the training set. The
medians are read from a histogram that `EntropyHistogram` fills batch by batch.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Literal

import torch

from rcil.core.errors import ConfigError, did_you_mean
from rcil.losses.precision import full_precision

if TYPE_CHECKING:
    from torch import Tensor

Convention = Literal["official", "paper"]

_TINY = 1e-8
"""Keeps log(0) finite; PLOP's value."""


@full_precision
def normalised_entropy(probabilities: Tensor) -> Tensor:
    """Entropy [N, H, W] of class probabilities [N, C, H, W], as the mean over classes divided by log C.

    The mean (PLOP's choice) where the usual definition has a sum makes this C times smaller than 1 for a uniform
    distribution. Thresholds are relative to it, so only the floor of 0.001 is affected.
    """
    per_class = -probabilities * (probabilities + _TINY).log()
    return per_class.mean(dim=1) / math.log(probabilities.shape[1] + _TINY)


class EntropyHistogram:
    """Histogram of the old model's entropy on background pixels, per predicted class.

    Args:
        classes: All classes so far, background and this step's included.
        max_entropy: Entropies are divided by it; log(classes) by default.
        bins: Bins between 0 and 1.
        device: Device of the counts.
    """

    def __init__(
        self, classes: int, *, max_entropy: float | None = None, bins: int = 100, device: torch.device | str = "cpu"
    ) -> None:
        if classes < 2 or bins < 1:
            raise ConfigError(f"a histogram of {classes} classes and {bins} bins", "At least 2 classes and 1 bin.")
        self.max_entropy = math.log(classes) if max_entropy is None else max_entropy
        self.counts = torch.zeros((classes, bins), dtype=torch.int64, device=device)

    @torch.no_grad()
    def update(self, old_logits: Tensor, labels: Tensor) -> None:
        """Count the background pixels of a batch: logits [N, O, H, W], class ids [N, H, W]."""
        classes, bins = self.counts.shape
        relative, predicted = _certainty(old_logits, self.max_entropy)
        column = (relative * bins).long().clamp(min=0, max=bins - 1)
        cell = (predicted * bins + column).masked_fill(
            labels != 0, classes * bins
        )  # other pixels go into an extra cell
        counts = cell.new_zeros(classes * bins + 1).index_add(0, cell.flatten(), torch.ones_like(cell).flatten())
        self.counts += counts[:-1].view(classes, bins).to(self.counts.device)

    def medians(self, convention: Convention = "official") -> Tensor:
        """Median entropy [K] of every class, 0 for a class that was never predicted.

        Args:
            convention: "paper" interpolates inside the bin that holds the middle pixel. "official" reproduces the
                published code, whose running sum grows by the bin's number rather than its count and which reads
                some bins one too low; its thresholds are the ones behind the published numbers.
        """
        if convention not in ("official", "paper"):
            raise ConfigError(f"unknown convention '{convention}'", did_you_mean(convention, ("official", "paper")))
        median = _official_median if convention == "official" else _histogram_median
        return torch.tensor([median(row) for row in self.counts.tolist()], device=self.counts.device)

    def thresholds(self, convention: Convention = "official", floor: float = 0.001) -> Tensor:
        """Medians [K], at least `floor`."""
        return self.medians(convention).clamp(min=floor)


@torch.no_grad()
def pseudo_labels(
    old_logits: Tensor,
    labels: Tensor,
    thresholds: Tensor,
    max_entropy: float | None = None,
    *,
    min_factor: float = 0.0,
    ignore_index: int = 255,
) -> tuple[Tensor, Tensor]:
    """Labels completed by the old model, and how much of each image's background it was certain of.

    Args:
        old_logits: The old model's logits [N, O, H, W].
        labels: Class ids [N, H, W]; ids below O count as background, an `ignore_index` never does.
        thresholds: Largest relative entropy of every class [K], K >= O.
        max_entropy: The `max_entropy` of the `EntropyHistogram`; log K by default.
        min_factor: Smallest factor.
        ignore_index: Label that uncertain background gets.

    Returns:
        Labels [N, H, W], and factors [N] in [0, 1] by which to scale the cross entropy of each image.
    """
    if len(thresholds) < old_logits.shape[1]:
        raise ConfigError(
            f"{len(thresholds)} thresholds for a model of {old_logits.shape[1]} classes",
            "Make them with an EntropyHistogram of all classes so far.",
        )
    scale = math.log(len(thresholds)) if max_entropy is None else max_entropy
    relative, predicted = _certainty(old_logits, scale)
    background = (labels < old_logits.shape[1]) & (labels != ignore_index)
    certain = background & (relative < thresholds.to(relative)[predicted])
    completed = labels.masked_fill(background, ignore_index)
    completed = torch.where(certain, predicted.to(labels.dtype), completed)
    factor = certain.flatten(1).sum(dim=1) / (background.flatten(1).sum(dim=1) + 1e-6)
    return completed, factor.clamp(min=min_factor)


@full_precision
def _certainty(old_logits: Tensor, max_entropy: float) -> tuple[Tensor, Tensor]:
    """Relative entropy [N, H, W] and predicted class [N, H, W] of logits [N, O, H, W]."""
    return normalised_entropy(old_logits.softmax(dim=1)) / max_entropy, old_logits.argmax(dim=1)


def _histogram_median(counts: list[int]) -> float:
    """Median of binned values in [0, 1], interpolated inside its bin."""
    half = sum(counts) / 2
    below = 0
    for index, count in enumerate(counts):
        if count and below + count >= half:
            return (index + (half - below) / count) / len(counts)
        below += count
    return 0.0


def _official_median(counts: list[int]) -> float:
    """Median as the published code computes it, with its two mistakes.

    The running sum adds the bin's number instead of its count; and the bin read is floor(i / n * n) in floating
    point, which for 29, 57 and 58 of 100 is one too low. When no bin fits, the last one is extrapolated, without end
    if it is empty. Where the original divides zero by zero, the bin's lower border is the answer.
    """
    bins, half = len(counts), sum(counts) / 2
    if half == 0:
        return 0.0
    running = 0.0
    border, count = 0.0, 0
    for index in range(bins):
        border = index / bins
        count = counts[int(border * bins)]
        if running <= half <= running + count:
            break
        running += border * bins
    if count == 0:
        return math.copysign(math.inf, half - running) if half != running else border
    return border + (half - running) / count / bins
