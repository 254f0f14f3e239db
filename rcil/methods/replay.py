"""Replay of features: old classes that the images of a step do not show are drawn from what the checkpoint remembers.

The rows of the classifier are fitted to whole images of the step. If these show nothing of an old class, its row is
only ever told what it is not, and loses it. Drawn features take the place of the missing ones. The body has changed
since they were measured; a linear map from the old features of the step's images to the new ones moves them along.

After "Prototype Augmentation and Self-Supervision for Incremental Learning" (CVPR 2021), with the correlations of
"Class-Incremental Learning via Dual Augmentation" (NeurIPS 2021) and the drift of "Semantic Drift Compensation"
(CVPR 2020).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional as F

from rcil.data.protocol import BACKGROUND
from rcil.methods.pixels import Pixels
from rcil.model.features import FeatureStatistics

DRAWN, DRAWN_BACKGROUND, MAX_DRAWN = 15_000, 50_000, 150_000
"""Features drawn of every class, of background, which is more diverse, and of all classes together."""
MIN_PIXELS = 200
"""A class with fewer pixels is not measured."""
MAX_WIDTH = 1024
"""With more features the correlation would take megabytes, and nothing is measured."""
RIDGE = 1e-2
"""Pull of the linear map of the drift towards no drift, relative to the mean square of the features."""
MIN_DEVIATION = 1e-3
"""Added to deviations, so that a constant feature stays one in half precision."""


@dataclass(frozen=True)
class Statistics:
    """Statistics of features as tensors; see `FeatureStatistics`."""

    counts: tuple[int, ...]
    means: Tensor
    deviations: Tensor
    correlation: Tensor

    @classmethod
    def of(cls, stored: FeatureStatistics, device: torch.device) -> Statistics:
        """The tensors of stored statistics."""
        return cls(stored.counts, *(torch.from_numpy(values).to(device) for values in stored.arrays()))


def measure_features(pixels: Pixels, known: FeatureStatistics | None = None, keep: int = 0) -> FeatureStatistics | None:
    """Statistics of the features of all classes; None without pixels, or with too many features.

    Args:
        pixels: Pixels of the network.
        known: Statistics of the network before the step, for classes that the pixels hardly show. They are moved if the
            pixels have `old_features`.
        keep: The first classes, of which only `known` is believed: what the old model sees of them may be mistakes.
    """
    width, classes = pixels.features.shape[1], pixels.targets.shape[1]
    if not len(pixels.features) or width > MAX_WIDTH:
        return None
    labels = pixels.targets.argmax(dim=1)
    found = F.one_hot(labels, classes).sum(dim=0).tolist()
    device = pixels.features.device
    earlier = Statistics.of(known, device) if known is not None and known.width == width else None
    move = drift(pixels)
    means = list(torch.zeros(classes, width, device=device))
    deviations, counts = list(torch.ones(classes, width, device=device)), [0] * classes
    correlations = [earlier.correlation] * sum(1 for count in earlier.counts[1:keep] if count) if earlier else []
    for row in range(classes):
        if earlier is not None and row < len(earlier.counts) and (row < keep or found[row] < MIN_PIXELS):
            counts[row], deviations[row] = earlier.counts[row], earlier.deviations[row]
            means[row] = move(earlier.means[row][None])[0]
        elif row >= keep and found[row] >= MIN_PIXELS:
            features = pixels.features[labels == row].float()
            counts[row], means[row] = found[row], features.mean(dim=0)
            deviations[row] = features.std(dim=0, correction=0) + MIN_DEVIATION
            if row != BACKGROUND:
                normed = (features - means[row]) / deviations[row]
                correlations.append(normed.T @ normed / len(normed))
    correlation = torch.stack(correlations).mean(dim=0) if correlations else torch.eye(width, device=device)
    arrays = (torch.stack(means), torch.stack(deviations), correlation)
    return FeatureStatistics.of(counts, *(values.cpu().numpy() for values in arrays))


def with_drawn(pixels: Pixels, known: FeatureStatistics) -> Pixels:
    """The pixels, and features drawn from `known` with the class that they were drawn from.

    Drawn features are never below the smallest of the pixels, where an activation ends. The same call draws the same
    features, in every process of a run: the random numbers are those of the CPU.

    Args:
        pixels: Pixels of a network; `old_features` moves the drawn ones to it.
        known: Statistics of the network before the step.
    """
    width, classes = pixels.features.shape[1], pixels.targets.shape[1]
    device = pixels.features.device
    stored = Statistics.of(known, device)
    rows = [row for row, count in enumerate(stored.counts[:classes]) if count]
    if not len(pixels.features) or known.width != width or not rows:
        return pixels
    values, vectors = torch.linalg.eigh(stored.correlation)  # rounded to halves, it may have eigenvalues below 0
    root = vectors * values.clamp(min=0).sqrt()
    generator, move, least = torch.Generator().manual_seed(0), drift(pixels), pixels.features.min()
    share = min(1.0, MAX_DRAWN / (DRAWN_BACKGROUND + DRAWN * len(rows)))
    features, targets = [pixels.features], [pixels.targets]
    for row in rows:
        count = max(1, round(share * (DRAWN_BACKGROUND if row == BACKGROUND else DRAWN)))
        noise = torch.randn(count, width, generator=generator).to(device) @ root.T
        drawn = move(stored.means[row] + stored.deviations[row] * noise).to(pixels.features)
        features.append(drawn.maximum(least))
        targets.append(F.one_hot(torch.full((count,), row, device=device), classes).to(pixels.targets))
    return Pixels(torch.cat(features), torch.cat(targets))


def drift(pixels: Pixels) -> Callable[[Tensor], Tensor]:
    """A map from features [P, D] before the step to those after it, fitted to the pixels; none without `old_features`.

    It is linear, and pulled towards no change where the pixels say nothing.
    """
    before, after = pixels.old_features, pixels.features
    if before is None or before.shape != after.shape or not len(before):
        return lambda features: features
    before, after = before.double(), after.double()
    products = before.T @ before
    pull = RIDGE * products.diagonal().mean() * torch.eye(len(products)).to(products)
    change = torch.linalg.solve(products + pull, before.T @ (after - before))
    return lambda features: (features.double() + features.double() @ change).to(features)
