"""Other batches and sizes: every row of a batch as its image alone, and every size that a graph takes."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch

from rcil.core.errors import RunError
from rcil.core.images import Image
from rcil.model.class_match import match_classes
from rcil.training.memory import free_memory
from rcil_export.checks.artefact import Artefact, GraphArtefact, Prediction
from rcil_export.checks.limits import DEFAULTS, Limits
from rcil_export.checks.outputs.pixels import compare_pixels
from rcil_export.checks.result import Item
from rcil_export.graph.shapes import Extent, InputShape
from rcil_export.images import CheckImage, CheckImages, common_shape, fit

Size = tuple[int, int]
BATCH = ("batch", "Different images of a batch", "every row as its image alone, within the limits of this precision")
SIZES = ("sizes", "Other sizes", "within the limits of this precision at every size")
"""Key, title and requirement of an item."""
MAX_BATCH_BYTES = 2**31
"""Size of the logits of one batch; larger batches may not fit into the memory of the machine that exports."""
MAX_DIFFERENT = 13
"""Different images in a batch; the two orders of `arrangements` tell all rows of up to 169 apart."""
MAX_PIXELS = 2**22
"""Pixels of an image that is tried; a larger one takes minutes on a CPU."""
BYTES_PER_PIXEL = 1024
"""Memory of a network's maps beside the logits, per pixel of the image, at most."""
ARRAYS = 8
"""Arrays of the size of the logits that a comparison holds."""
SLACK = 3
"""Below fp32, one image at one size may differ this many times more than all images together. Rounding flips more
pixels of small images, and int8 is calibrated at one size: honest files of untrained networks kept only 62 % of the
classes. So below fp32 a size fails by the error of its logits alone, and few equal classes give a warning."""


@dataclass(frozen=True)
class _Compared:
    """Two predictions of one image."""

    share: float
    """Share of pixels with the same class, ties aside."""
    error: float
    """Largest error of a logit; infinite where a confidence is wrong."""
    close: bool
    """Whether the error is within its limit."""
    alike: bool
    """Whether the share is within its limit."""


@dataclass(frozen=True)
class _Row(_Compared):
    row: int
    batch: int


@dataclass(frozen=True)
class _Sized(_Compared):
    size: Size


def batch_counts(shape: InputShape) -> list[int]:
    """The smallest, usual and largest batch of several images that a graph takes."""
    return [count for count in sorted({shape.batch.low, shape.batch.usual, shape.batch.high}) if count > 1]


def batch_item(artefact: GraphArtefact, images: CheckImages, limits: Limits) -> Item | None:
    """Batches of different images in two orders; None for a graph that takes single images only.

    Every row is compared with the prediction of the same artefact for the image alone. That prediction is compared with
    the reference image by image, so that rounding is not counted twice and the limits can be tight. The images have the
    smallest size that the graph takes, because the largest batch of the largest images may be too much.

    Args:
        artefact: The artefact that is checked.
        images: At least one; if the batch needs more, variants of them are made.
        limits: Limits for a row. Rows of one int8 graph differ by the order of summation alone, so the limits of bf16
            apply to them.
    """
    counts = batch_counts(artefact.interface.shape)
    if not counts:
        return None
    small = InputShape.of(artefact.interface.shape.height.low, artefact.interface.shape.width.low)
    different = min(counts[-1], MAX_DIFFERENT)
    copies = counts[-1] + different
    needed = 4 * copies * small.height.low * small.width.low * len(artefact.metadata.classes)
    if needed > MAX_BATCH_BYTES:
        measured = f"not run: the logits of {copies} images would take {needed / 2**30:.1f} GiB"
        return Item(*BATCH[:2], None, measured, BATCH[2])
    try:
        worst = _worst_row(artefact, counts, different_images(images, different, small), limits)
    except RunError as failure:
        return Item(*BATCH[:2], False, failure.message, BATCH[2])
    ok = worst.close and worst.alike
    text = f"{worst.share:.4%} of pixels as alone, logits within {worst.error:.1e}"
    which = "in the worst row" if ok else f"in row {worst.row} of a batch of {worst.batch}"
    measured = f"batches of {' and '.join(map(str, counts))}: {which} {text}"
    detail = {"batches": counts, "row": worst.row, "batch": worst.batch, "agreement": worst.share}
    return Item(*BATCH[:2], ok, measured, BATCH[2], detail)


def different_images(images: CheckImages, count: int, shape: InputShape) -> list[Image]:
    """This many different images [H, W, 3] of one size; if there are too few, they are shifted and mirrored."""
    read = [fit(images.readers[index](), shape).pixels for index in range(min(count, len(images)))]
    made: list[Image] = []
    for index in range(count):
        pixels, again = read[index % len(read)], index // len(read)
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


def _worst_row(artefact: GraphArtefact, counts: Sequence[int], images: list[Image], limits: Limits) -> _Row:
    """The first row that differs from its image alone by too much, or the row that differs most."""
    alone = [artefact.predict(image) for image in images]
    if artefact.precision == "int8":
        coarse = DEFAULTS["bf16"]
        limits = limits.model_copy(update={"error": coarse.error, "agreement": coarse.agreement})
    worst: _Row | None = None
    for count in counts:
        for order in arrangements(count, min(count, len(images))):
            rows = artefact.predict_images([images[index] for index in order])
            for row, prediction in enumerate(rows):
                compared = _compared(artefact, artefact, alone[order[row]], prediction, limits, slack=1)
                found = _Row(**vars(compared), row=row, batch=count)
                if not (found.close and found.alike):
                    return found
                if worst is None or (found.share, -found.error) < (worst.share, -worst.error):
                    worst = found
    assert worst is not None
    return worst


def size_items(a: Artefact, b: Artefact, image: CheckImage, limits: Limits) -> list[Item]:
    """One image at several sizes through both artefacts; no item if b takes one size only.

    Args:
        a: The reference.
        b: The artefact that is checked.
        image: Resized to every size.
        limits: Limits for all images together; see `SLACK`.
    """
    shape = common_shape(a.shape, b.shape)
    if not isinstance(b, GraphArtefact) or shape is None or shape.one_size:
        return []
    classes = len(b.metadata.classes)
    chosen, skipped = affordable(sizes_of(shape, b.metadata.architecture.output_stride), classes, shape.batch.low)
    slack = 1 if limits.agreement == 1 else SLACK
    tried: list[_Sized] = []
    for size in chosen:
        try:
            pixels = fit(image, InputShape.of(*size)).pixels
            first, second = _predict(a, pixels), _predict(b, pixels)
        except RunError as failure:
            return [Item(*SIZES[:2], False, f"at {size_text(size)}: {failure.message}", SIZES[2])]
        tried.append(_Sized(**vars(_compared(a, b, first, second, limits, slack=slack)), size=size))
    return [*([_size_item(tried, exact=limits.agreement == 1)] if tried else []), *not_run(skipped)]


def _predict(artefact: Artefact, pixels: Image) -> Prediction:
    """The prediction for an image, if it has the size of the image."""
    found, size = artefact.predict(pixels), pixels.shape[:2]
    if found.mask.shape != size or (found.logits is not None and found.logits.shape[1:] != size):
        raise RunError(f"{artefact.name} gives a mask of {size_text(found.mask.shape)}", "Export it again.")
    return found


def _compared(
    a: Artefact, b: Artefact, first: Prediction, second: Prediction, limits: Limits, *, slack: int
) -> _Compared:
    """Compare what a and b predict for one image; confidences too, where a and b are the same artefact."""
    match = match_classes(a.metadata.classes, b.metadata.classes)
    pixels = compare_pixels(match, (first.logits, second.logits), (first.mask, second.mask), tie=limits.tie)
    share = 1 - float(pixels.differs.mean())
    error = 0.0 if pixels.errors is None else float(pixels.errors.max())
    if a is b and first.confidence is not None and second.confidence is not None:
        apart = float(np.abs(first.confidence - second.confidence).mean())
        error = error if apart <= limits.confidence else float("inf")
    close = math.isfinite(error) if limits.error is None else error <= slack * limits.error
    return _Compared(share, error, close, share >= 1 - slack * (1 - limits.agreement))


def _size_item(tried: list[_Sized], *, exact: bool) -> Item:
    """Fails for the first size that is wrong; warns of the first where rounding may explain the difference.

    Args:
        tried: All sizes.
        exact: Whether nothing is rounded, so that another class is an error.
    """
    wrong = next((found for found in tried if not found.close or (exact and not found.alike)), None)
    unlike = next((found for found in tried if not found.alike), None)
    worst = wrong or unlike or min(tried, key=lambda found: found.share)
    names = [size_text(found.size) for found in tried]
    where = f"at {size_text(worst.size)}" if wrong or unlike else f"{', '.join(names)}: at the worst of them"
    measured = f"{where} {worst.share:.4%} of pixels have the same class, logits within {worst.error:.1e}"
    detail = {"sizes": names}
    if wrong is None and unlike is not None:
        return Item(*SIZES[:2], None, f"WARNING: {measured}", SIZES[2], detail, warning=True)
    return Item(*SIZES[:2], wrong is None, measured, SIZES[2], detail)


def affordable(sizes: list[Size], classes: int, batch: int) -> tuple[list[Size], list[Size]]:
    """Sizes that can be tried on this machine, and those that take too much memory or time."""
    room = free_memory(torch.device("cpu"))

    def fits(size: Size) -> bool:
        pixels = batch * size[0] * size[1]
        needed = pixels * (BYTES_PER_PIXEL + 4 * ARRAYS * classes)
        return pixels <= MAX_PIXELS and (room is None or needed <= room // 2)

    chosen = [size for size in sizes if fits(size)]
    return chosen, [size for size in sizes if size not in chosen]


def not_run(sizes: list[Size]) -> list[Item]:
    """An item that names the sizes that were left out, if there are any."""
    if not sizes:
        return []
    measured = f"not run: {', '.join(map(size_text, sizes))} take too much memory or time here"
    return [Item(f"{SIZES[0]}_not_run", "Largest sizes", None, measured, SIZES[2])]


def sizes_of(shape: InputShape, stride: int) -> list[Size]:
    """The sizes to try: the corners of the range, the usual one, and lengths that the stride does not divide.

    Args:
        shape: The range.
        stride: Pixels per cell of the network's smallest map.
    """
    high, wide = shape.height, shape.width
    found = [
        (high.low, wide.low),
        (high.usual, wide.usual),
        (_odd(high, high.low, stride), _odd(wide, wide.usual, stride)),
        (_odd(high, high.usual, stride), _odd(wide, wide.low, stride)),
        (high.low, wide.high),
        (high.high, wide.low),
        (high.high, wide.high),
    ]
    return list(dict.fromkeys(found))


def _odd(extent: Extent, start: int, stride: int) -> int:
    """The nearest prime to `start`, larger ones first, that the range holds and the stride does not divide."""
    above = range(start + 1, min(extent.high, start + 4 * stride) + 1)
    below = range(start - 1, max(extent.low, start - 4 * stride) - 1, -1)
    fits = [length for length in (*above, *below) if length % stride]
    return next((length for length in fits if _prime(length)), next(iter(fits), start))


def _prime(number: int) -> bool:
    return number > 1 and all(number % divisor for divisor in range(2, math.isqrt(number) + 1))


def size_text(size: tuple[int, ...]) -> str:
    """`64x80`."""
    return "x".join(map(str, size))
