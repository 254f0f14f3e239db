"""Old classes in the background of a site's masks: measure them, and write masks that include them."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from pathlib import Path

import numpy as np

from rcil.core.images import read_rgb
from rcil.core.masks import read_mask, write_mask
from rcil.data.protocol import BACKGROUND
from rcil.data.scan import id_table
from rcil.data.types import ClassSpec, Sample, SegmentationData
from rcil.evaluation.evaluate import rows_by_value
from rcil.inference import Model
from rcil.model.metadata import Metadata

CERTAIN = 0.9
"""Minimum probability of a prediction that counts."""
VISIBLE = 0.005
"""An image shows a class that is certain in this share of its pixels."""


def left_as_background(
    model: Model, data: SegmentationData, samples: Sequence[Sample], *, scale: float = 1.0
) -> dict[str, tuple[float, float]]:
    """What the model confidently predicts where the masks say background, for each old class.

    Returns:
        The share of all background pixels, and the share of the images that show the class.

    Args:
        model: The old model.
        data: The dataset of the samples.
        samples: Images and masks.
        scale: Factor by which images are resized for the network.
    """
    table, counts, shown = id_table(data), np.zeros(256, np.int64), np.zeros(256, np.int64)
    total = 0
    for sample in samples:
        rows, confidence = model.folded.segment_with_confidence(read_rgb(sample.image), scale=scale)
        background = table[read_mask(sample.mask)] == BACKGROUND
        total += int(background.sum())
        found = np.bincount(rows[background & (confidence > CERTAIN)], minlength=256)
        counts += found
        shown += found >= VISIBLE * background.size
    names = [c.name for c in model.classes]
    shares, images = counts / max(1, total), shown / max(1, len(samples))
    return {name: (float(shares[row]), float(images[row])) for row, name in enumerate(names) if row != BACKGROUND}


def complete_masks(
    model: Model,
    new: Metadata,
    data: SegmentationData,
    samples: Sequence[Sample],
    labelled: Collection[str],
    folder: Path,
    *,
    scale: float = 1.0,
) -> None:
    """Write masks that contain the old model's predictions of old classes that the site does not label.

    Otherwise the best epoch would be the one that forgot these classes, as their pixels would count as errors.

    Args:
        model: The old model.
        new: Description of the model to be trained; the masks hold its rows.
        data: The dataset of the samples.
        samples: Images and masks.
        labelled: Old classes whose labels can be trusted.
        folder: Folder to which the masks are written.
        scale: Factor by which images are resized for the network.
    """
    table = rows_by_value(data, [c.name for c in new.classes])
    trusted = {BACKGROUND, *(row for row, c in enumerate(model.classes) if c.name in labelled)}
    filled = [row for row in range(len(model.classes)) if row not in trusted]
    for sample in samples:
        truth = table[read_mask(sample.mask)]
        rows = model.folded.segment(read_rgb(sample.image), scale=scale)
        truth = np.where((truth == BACKGROUND) & np.isin(rows, filled), rows, truth)
        write_mask(_mask_in(folder, sample), truth)


def completed(new: Metadata, samples: Sequence[Sample], folder: Path) -> tuple[SegmentationData, tuple[Sample, ...]]:
    """The samples with the masks that `complete_masks` wrote into `folder`; mask values are rows of the model `new`."""
    classes = tuple(ClassSpec(c.name, c.colour) for c in new.classes)
    filled = (Sample(s.name, s.image, _mask_in(folder, s), s.domain) for s in samples)
    return SegmentationData(folder, classes, {}), tuple(filled)


def _mask_in(folder: Path, sample: Sample) -> Path:
    return folder / f"{sample.name}.png"
