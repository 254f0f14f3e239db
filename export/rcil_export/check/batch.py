"""Whether a graph treats all images of a batch alike: equal images must give equal masks in every row."""

from __future__ import annotations

import math
from collections.abc import Iterator
from itertools import chain

import numpy as np

from rcil_export.check.artefact import GraphArtefact, Prediction, RunError
from rcil_export.check.class_match import match_classes
from rcil_export.check.images import CheckImage, fit
from rcil_export.check.limits import Limits
from rcil_export.check.pixels import compare_pixels
from rcil_export.check.result import Item
from rcil_export.shapes import InputShape

KEY, TITLE = "batch", "Equal images of a batch"
MOST_BYTES = 2**31
"""Of the logits of one batch: what needs more may not fit into the memory of the machine that exports."""


def batch_item(artefact: GraphArtefact, image: CheckImage, limits: Limits) -> Item | None:
    """The smallest and the largest batch, once each, filled with one image; None for a graph of single images.

    Rows may differ by the order of summation alone, so the limits of two forms of one network hold between them. The
    image has the smallest size that the graph takes, because the largest batch of the largest images may be too much.

    Args:
        artefact: What is checked.
        image: Resized.
        limits: What a row may differ by from the first row of the smallest batch.
    """
    shape, required = artefact.interface.shape, "every row as the first, within the limits of this precision"
    if shape.batch.high == 1:
        return None
    counts = sorted({shape.batch.low, shape.batch.high})
    small = InputShape.of(shape.height.low, shape.width.low)
    bytes_needed = 4 * counts[-1] * small.height.low * small.width.low * len(artefact.metadata.classes)
    if bytes_needed > MOST_BYTES:
        measured = f"not run: the logits of {counts[-1]} images would take {bytes_needed / 2**30:.1f} GiB"
        return Item(KEY, TITLE, None, measured, required)
    pixels = fit(image, small).pixels
    try:
        share, error = _worst(artefact, chain.from_iterable(artefact.predict_batch(pixels, n) for n in counts), limits)
    except RunError as failure:
        return Item(KEY, TITLE, False, failure.message, required)
    ok = share >= limits.agreement and (math.isfinite(error) if limits.error is None else error <= limits.error)
    ran = " and ".join(map(str, counts))
    measured = f"batches of {ran}: {share:.4%} of pixels in the worst row as in the first, logits within {error:.1e}"
    return Item(KEY, TITLE, ok, measured, required, {"batches": counts, "agreement": share})


def _worst(artefact: GraphArtefact, rows: Iterator[Prediction], limits: Limits) -> tuple[float, float]:
    """Least share of pixels with the class of the first row, ties aside, and the largest error of a logit."""
    match, first = match_classes(artefact.metadata, artefact.metadata), next(rows)
    share, error = 1.0, 0.0
    for row in rows:
        found = compare_pixels(match, (first.logits, row.logits), (first.mask, row.mask), tie=limits.tie)
        share = min(share, 1 - float(found.differs.mean()))
        if found.errors is not None:
            error = max(error, float(found.errors.max()))
        if first.confidence is not None and row.confidence is not None:
            apart = float(np.abs(first.confidence - row.confidence).mean())
            error = max(error, 0.0 if apart <= limits.confidence else float("inf"))
    return share, error
