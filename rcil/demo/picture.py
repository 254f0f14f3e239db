"""The picture of the demo: scenes in rows; image, truth and what each model sees in columns."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from rcil.core.drawing import Image, grid, legend, lut_of, overlay
from rcil.core.images import read_rgb
from rcil.core.masks import read_mask
from rcil.data.scan import scan
from rcil.data.types import Sample, SegmentationData
from rcil.evaluation.evaluate import rows_by_value
from rcil.inference import Model
from rcil.model.metadata import Metadata


def pick(data: SegmentationData, split: str, names: Sequence[str], count: int) -> list[Sample]:
    """The samples that show most of all `names`, ranked by the smallest pixel count among these classes."""
    ids = [data.names.index(name) for name in names]
    contents = scan(data, data.splits[split])
    ranked = sorted(contents, key=lambda c: (-int(c.pixels[ids].min()), -int(c.pixels[ids[-1]]), c.sample.name))
    return [content.sample for content in ranked[:count]]


def draw_grid(samples: Sequence[Sample], data: SegmentationData, models: Mapping[str, Model]) -> Image:
    """Draw a titled grid with a legend below, RGB [H, W, 3].

    Args:
        samples: One sample per row.
        data: The dataset of the samples.
        models: Title -> a model; the last one's classes are those of truth and legend. Rows may be
            in another order from model to model, so each has its own colours.
    """
    metadata = list(models.values())[-1].metadata
    table = rows_by_value(data, [c.name for c in metadata.classes])
    rows = []
    for sample in samples:
        image = read_rgb(sample.image)
        masks = [(table[read_mask(sample.mask)], metadata), *((m.segment(image), m.metadata) for m in models.values())]
        rows.append([image, *(overlay(image, mask, _colours(d), 0.65) for mask, d in masks)])
    picture = grid(rows, ["image", "truth", *models])
    below = legend([(c.name, c.colour) for c in metadata.classes], picture.shape[1])
    return np.concatenate([picture, below])


def _colours(metadata: Metadata) -> Image:
    return lut_of({row: c.colour for row, c in enumerate(metadata.classes)})
