"""How sure an old model must be of a pixel: the median entropy of every class on a step's background."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from torch import Tensor

from rcil.core.errors import ConfigError
from rcil.losses import Convention, EntropyHistogram
from rcil.methods.base import StepInfo
from rcil.nn import Maps


def entropy_thresholds(
    batches: Iterable[tuple[Maps, Tensor]],
    info: StepInfo,
    convention: Convention,
    floor: float,
    sum_over_processes: Callable[[Tensor], Tensor],
) -> Tensor:
    """Largest entropy [classes] at which a prediction counts as certain.

    Args:
        batches: The teacher's maps and the labels [N, H, W] of every training batch.
        info: The step.
        convention: How the medians are read from their histogram.
        floor: Smallest threshold.
        sum_over_processes: Adds up what the processes of a run counted.
    """
    histogram: EntropyHistogram | None = None
    for old, labels in batches:
        histogram = histogram or EntropyHistogram(info.classes, device=old.logits.device)
        histogram.update(old.logits, labels)
    if histogram is None:
        raise ConfigError("there is no batch to read entropy thresholds from", "The step has no training images.")
    histogram.counts = sum_over_processes(histogram.counts)
    return histogram.thresholds(convention, floor)
