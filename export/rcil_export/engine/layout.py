"""The axes of an input that takes images."""

from __future__ import annotations

from rcil_export.graph.shapes import Extent, InputShape

CHANNELS = 3


def is_image(shape: tuple[int, ...]) -> bool:
    """Whether this is [N, H, W, 3] or [N, 3, H, W]; -1 is an open size."""
    return len(shape) == 4 and CHANNELS in (shape[1], shape[3])


def axis_ranges(shape: tuple[int, ...], sizes: InputShape) -> tuple[Extent, Extent, Extent, Extent]:
    """`sizes` in the axis order of an input: [N, H, W, 3] where the last axis is 3, else [N, 3, H, W]."""
    colours = Extent.of(CHANNELS)
    if shape[3] == CHANNELS:
        return sizes.batch, sizes.height, sizes.width, colours
    return sizes.batch, colours, sizes.height, sizes.width


def sizes_text(shape: tuple[int, ...]) -> str:
    """For messages, `[1, ?, ?, 3]`."""
    return f"[{', '.join('?' if size == -1 else str(size) for size in shape)}]"
