"""Whether a graph of open sizes is right at all of them: the smallest, the usual, the largest, and odd ones."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch

from rcil.core.errors import RunError
from rcil.model.class_match import match_classes
from rcil.training.memory import free_memory
from rcil_export.checks.artefact import Artefact, GraphArtefact
from rcil_export.checks.limits import Limits
from rcil_export.checks.outputs.pixels import compare_pixels
from rcil_export.checks.result import Item
from rcil_export.graph.shapes import Extent, InputShape
from rcil_export.images import CheckImage, common_shape, fit

KEY, TITLE = "sizes", "Other sizes"
REQUIRED = "within the limits of this precision at every size"
MAX_PIXELS = 2**22
"""Of an image that is tried; a larger one takes minutes on a CPU."""
BYTES_PER_PIXEL = 1024
"""What the maps of a network take at most beside the logits, for each pixel of the image."""
ARRAYS = 8
"""Arrays of the size of the logits that a comparison holds."""
SLACK = 3
"""Below fp32 one image of one size may differ by so many times what all images may. Rounding flips more pixels of small
images, and int8 is calibrated at one size: honest files of untrained networks kept only 62 % of the classes. So a size
fails there by the error of its logits alone, and one with few equal classes gets a warning."""

Size = tuple[int, int]


@dataclass(frozen=True)
class _Found:
    size: Size
    share: float
    """Pixels with the same class, ties aside."""
    error: float
    """Largest error of a logit."""
    close: bool
    """Whether the logits are as close as they must be."""
    alike: bool
    """Whether so many pixels have the same class as must have."""


def size_items(a: Artefact, b: Artefact, image: CheckImage, limits: Limits) -> list[Item]:
    """One image at several sizes through both; nothing where b takes one size only.

    Args:
        a: The reference.
        b: What is checked.
        image: Resized.
        limits: For all images together; see `SLACK`.
    """
    shape = common_shape(a.shape, b.shape)
    if not isinstance(b, GraphArtefact) or shape is None or (shape.height.fixed and shape.width.fixed):
        return []
    classes = len(b.metadata.classes)
    chosen, skipped = affordable(sizes_of(shape, b.metadata.architecture.output_stride), classes, shape.batch.low)
    tried: list[_Found] = []
    for size in chosen:
        try:
            tried.append(_compared(a, b, image, size, limits))
        except RunError as failure:
            return [Item(KEY, TITLE, False, f"at {size_text(size)}: {failure.message}", REQUIRED)]
    return [*([_item(tried, exact=limits.agreement == 1)] if tried else []), *not_run(skipped)]


def _item(tried: list[_Found], *, exact: bool) -> Item:
    """Fails for the first size that is wrong; warns of the first that only rounding may have made so.

    Args:
        tried: All sizes.
        exact: Whether nothing is rounded, so that another class is a mistake.
    """
    wrong = next((found for found in tried if not found.close or (exact and not found.alike)), None)
    unlike = next((found for found in tried if not found.alike), None)
    worst = wrong or unlike or min(tried, key=lambda found: found.share)
    names = [size_text(found.size) for found in tried]
    where = f"at {size_text(worst.size)}" if wrong or unlike else f"{', '.join(names)}: at the worst of them"
    measured = f"{where} {worst.share:.4%} of pixels have the same class, logits within {worst.error:.1e}"
    detail = {"sizes": names}
    if wrong is None and unlike is not None:
        return Item(KEY, TITLE, None, f"WARNING: {measured}", REQUIRED, detail, warning=True)
    return Item(KEY, TITLE, wrong is None, measured, REQUIRED, detail)


def affordable(sizes: list[Size], classes: int, batch: int) -> tuple[list[Size], list[Size]]:
    """Sizes that can be tried on this machine, and those that take too much."""
    room = free_memory(torch.device("cpu"))
    chosen = [size for size in sizes if _fits(size, classes, batch, room)]
    return chosen, [size for size in sizes if size not in chosen]


def not_run(sizes: list[Size]) -> list[Item]:
    """An item that says so, where sizes were left out."""
    if not sizes:
        return []
    measured = f"not run: {', '.join(map(size_text, sizes))} take too much memory or time here"
    return [Item(f"{KEY}_not_run", "Largest sizes", None, measured, REQUIRED)]


def sizes_of(shape: InputShape, stride: int) -> list[Size]:
    """The sizes to try: the corners of the range, the usual one, and lengths that the stride does not divide.

    Args:
        shape: The range.
        stride: Pixels for each cell of the network's smallest map.
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
    """The next prime above `start` that the range holds and the stride does not divide, or the start."""
    above = range(start + 1, min(extent.high, start + 4 * stride) + 1)
    below = range(start - 1, max(extent.low, start - 4 * stride) - 1, -1)
    fits = [length for length in (*above, *below) if length % stride]
    return next((length for length in fits if _prime(length)), next(iter(fits), start))


def _prime(number: int) -> bool:
    return number > 1 and all(number % divisor for divisor in range(2, math.isqrt(number) + 1))


def _fits(size: Size, classes: int, batch: int, room: int | None) -> bool:
    pixels = batch * size[0] * size[1]
    needed = pixels * (BYTES_PER_PIXEL + 4 * ARRAYS * classes)
    return pixels <= MAX_PIXELS and (room is None or needed <= room // 2)


def _compared(a: Artefact, b: Artefact, image: CheckImage, size: Size, limits: Limits) -> _Found:
    pixels = fit(image, InputShape.of(*size)).pixels
    first, second = a.predict(pixels), b.predict(pixels)
    for found, name in ((first, a.name), (second, b.name)):
        if found.mask.shape != size or (found.logits is not None and found.logits.shape[1:] != size):
            raise RunError(f"{name} gives a mask of {size_text(found.mask.shape)}", "Export it again.")
    match = match_classes(a.metadata.classes, b.metadata.classes)
    compared = compare_pixels(match, (first.logits, second.logits), (first.mask, second.mask), tie=limits.tie)
    error = 0.0 if compared.errors is None else float(compared.errors.max())
    share = 1 - float(compared.differs.mean())
    slack = 1 if limits.agreement == 1 else SLACK
    close = math.isfinite(error) if limits.error is None else error <= slack * limits.error
    return _Found(size, share, error, close, share >= 1 - slack * (1 - limits.agreement))


def size_text(size: tuple[int, ...]) -> str:
    """`64x80`."""
    return "x".join(map(str, size))
