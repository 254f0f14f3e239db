"""Compares two models: whether clients can use the new one, and how well both agree on an image."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from rcil.core.errors import RunError
from rcil.core.images import Image
from rcil.model.class_match import match_classes
from rcil_export.graph.shapes import InputShape
from rcil_serve.http.models import Model
from rcil_serve.runtime.backends.protocol import Mask
from rcil_serve.watch.measures.overlap import pair_counts, plain_overlap


@dataclass(frozen=True)
class Agreement:
    """Agreement of a new model with an old one on one image."""

    pixels: float | None
    """Share of pixels in common classes that keep their class; None if the old model saw no common class."""
    classes: dict[str, float]
    """IoU by name of each common class that at least one model saw."""


def incompatibilities(old: Model, new: Model) -> list[str]:
    """List what clients of `old` rely on and `new` does not provide."""
    before, after = old.backend.interface, new.backend.interface
    rows = {c.name: row for row, c in enumerate(new.classes)}
    lost = [c.name for c in old.classes if c.name not in rows]
    moved = [
        c.name
        for row, c in enumerate(old.classes)
        if c.name in rows and (rows[c.name] != row or new.classes[rows[c.name]].id != c.id)
    ]
    reasons = []
    if new.backend.metadata.rejected is not None:
        reasons.append(f"a check after training rejected it: {new.backend.metadata.rejected}")
    if lost:
        reasons.append(f"it does not know {', '.join(lost)}")
    if moved:
        reasons.append(f"it has a different row or id for {', '.join(moved)}")
    if before.input != after.input:
        reasons.append(f"it accepts {after.input} images instead of {before.input}")
    if not _covers(after.shape, before.shape):
        reasons.append(f"it accepts {after.shape} images instead of {before.shape}")
    gone = [name for name in before.outputs if name not in after.outputs and name != "logits"]
    if gone:
        reasons.append(f"it does not output {', '.join(gone)}")
    return reasons


def _covers(wide: InputShape, narrow: InputShape) -> bool:
    axes = ((wide.batch, narrow.batch), (wide.height, narrow.height), (wide.width, narrow.width))
    return all(outer.low <= inner.low and inner.high <= outer.high for outer, inner in axes)


def checked_mask(model: Model, image: Image) -> Mask:
    """Segment an image; raise if the mask or confidence is invalid."""
    found = model.predictor.segment(image)
    if found.mask.shape != image.shape[:2] or int(found.mask.max()) >= len(model.classes) or int(found.mask.min()) < 0:
        raise RunError(f"{model.backend.name} outputs masks with unknown classes", "Export it again.")
    if found.confidence is not None and not np.isfinite(found.confidence):
        raise RunError(f"{model.backend.name} outputs a non-finite confidence", "Export it in another precision.")
    return found.mask


def agreement(old: Model, old_mask: Mask, new: Model, new_mask: Mask) -> Agreement:
    """Agreement of two masks [H, W] of one image, with classes matched by name."""
    if not {c.name for c in old.classes} & {c.name for c in new.classes}:
        return Agreement(None, {})
    matching = match_classes(old.classes, new.classes)
    pairs = pair_counts(old_mask, new_mask, matching.counts)
    overlap = plain_overlap(pairs, matching)
    seen = int(pairs[matching.old_rows].sum())
    classes = {name: iou for name, iou in zip(matching.names, overlap.iou(), strict=True) if iou is not None}
    return Agreement(int(overlap.both.sum()) / seen if seen else None, classes)
