"""Whether every row of a batch is what its image gives alone, wherever it stands and whatever stands beside it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from rcil.core.errors import RunError
from rcil.core.images import Image
from rcil.model.class_match import match_classes
from rcil_export.checks.artefact import GraphArtefact, Prediction
from rcil_export.checks.limits import DEFAULTS, Limits
from rcil_export.checks.outputs.pixels import compare_pixels
from rcil_export.checks.result import Item
from rcil_export.graph.shapes import InputShape
from rcil_export.images import CheckImages, fit

KEY, TITLE = "batch", "Different images of a batch"
REQUIRED = "every row as its image alone, within the limits of this precision"
MAX_BYTES = 2**31
"""Logits of one batch: what needs more may not fit into the memory of the machine that exports."""
MAX_DIFFERENT = 13
"""Different images in a batch; the two orders of `arrangements` tell apart all rows of up to 169."""


@dataclass(frozen=True)
class _Row:
    """The row that differs most."""

    row: int
    batch: int
    share: float
    """Pixels with the class that the image has alone, ties aside."""
    error: float
    """Largest error of a logit; infinite where a confidence is wrong."""
    ok: bool


def batch_item(artefact: GraphArtefact, images: CheckImages, limits: Limits) -> Item | None:
    """The smallest, usual and largest batch in two orders, of different images; None where there are single ones only.

    Every row is compared with what the same artefact makes of the image alone. That one is compared with the reference
    image by image, so that rounding is not counted twice and the limits can be tight. The images have the smallest size
    that the graph takes, because the largest batch of the largest images may be too much.

    Args:
        artefact: What is checked.
        images: At least one; more are made of them where the batch needs more.
        limits: What a row may differ by. Rows of one int8 graph differ by the order of summation alone, so those of
            bf16 hold for them.
    """
    shape = artefact.interface.shape
    if shape.batch.high == 1:
        return None
    counts = [count for count in sorted({shape.batch.low, shape.batch.usual, shape.batch.high}) if count > 1]
    small = InputShape.of(shape.height.low, shape.width.low)
    copies = counts[-1] + min(counts[-1], MAX_DIFFERENT)
    needed = 4 * copies * small.height.low * small.width.low * len(artefact.metadata.classes)
    if needed > MAX_BYTES:
        measured = f"not run: the logits of {copies} images would take {needed / 2**30:.1f} GiB"
        return Item(KEY, TITLE, None, measured, REQUIRED)
    try:
        worst = _worst(artefact, counts, different_images(images, min(counts[-1], MAX_DIFFERENT), small), limits)
    except RunError as failure:
        return Item(KEY, TITLE, False, failure.message, REQUIRED)
    ran = " and ".join(map(str, counts))
    text = f"{worst.share:.4%} of pixels as alone, logits within {worst.error:.1e}"
    which = "in the worst row" if worst.ok else f"in row {worst.row} of a batch of {worst.batch}"
    detail = {"batches": counts, "row": worst.row, "batch": worst.batch, "agreement": worst.share}
    return Item(KEY, TITLE, worst.ok, f"batches of {ran}: {which} {text}", REQUIRED, detail)


def different_images(images: CheckImages, count: int, shape: InputShape) -> list[Image]:
    """So many different images [H, W, 3] of one size; more than there are become shifted and mirrored ones."""
    read = [fit(images.readers[at](), shape).pixels for at in range(min(count, len(images)))]
    made: list[Image] = []
    for at in range(count):
        pixels, again = read[at % len(read)], at // len(read)
        if again:
            pixels = np.roll(pixels, again * max(1, pixels.shape[1] // (count + 1)), axis=1)
            pixels = pixels[:, ::-1] if again % 2 else pixels[::-1]
        made.append(np.ascontiguousarray(pixels))
    return made


def arrangements(count: int, different: int) -> tuple[list[int], list[int]]:
    """Two orders of images in a batch; no two rows hold the same image in both (up to `different` squared rows)."""
    forwards = [row % different for row in range(count)]
    backwards = [(different - 1 - row - row // different) % different for row in range(count)]
    return forwards, backwards


def _worst(artefact: GraphArtefact, counts: Sequence[int], images: list[Image], limits: Limits) -> _Row:
    """The first row that is not as its image alone, or the row that differs most."""
    alone = [artefact.predict(image) for image in images]
    allowed = _limits_of_rows(artefact, limits)
    worst: _Row | None = None
    for count in counts:
        for order in arrangements(count, min(count, len(images))):
            rows = artefact.predict_images([images[at] for at in order])
            for row, prediction in enumerate(rows):
                found = _compared(artefact, row, count, alone[order[row]], prediction, allowed)
                if not found.ok:
                    return found
                if worst is None or (found.share, -found.error) < (worst.share, -worst.error):
                    worst = found
    assert worst is not None
    return worst


def _limits_of_rows(artefact: GraphArtefact, limits: Limits) -> Limits:
    if artefact.precision != "int8":
        return limits
    return limits.model_copy(update={"error": DEFAULTS["bf16"].error, "agreement": DEFAULTS["bf16"].agreement})


def _compared(
    artefact: GraphArtefact, row: int, batch: int, alone: Prediction, found: Prediction, limits: Limits
) -> _Row:
    match = match_classes(artefact.metadata.classes, artefact.metadata.classes)
    pixels = compare_pixels(match, (alone.logits, found.logits), (alone.mask, found.mask), tie=limits.tie)
    share = 1 - float(pixels.differs.mean())
    error = 0.0 if pixels.errors is None else float(pixels.errors.max())
    if alone.confidence is not None and found.confidence is not None:
        apart = float(np.abs(alone.confidence - found.confidence).mean())
        error = error if apart <= limits.confidence else float("inf")
    small = math.isfinite(error) if limits.error is None else error <= limits.error
    return _Row(row, batch, share, error, share >= limits.agreement and small)
