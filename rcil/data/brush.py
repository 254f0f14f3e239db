"""Label Studio's run lengths for brush strokes: a bit stream of an RGBA image.

The header has 32 bits with the number of values, 5 bits with the bits per value less one, and four times 4 bits with
the number of bits of a length, less one. Then blocks follow: one bit that is 1 for a repeated value and 0 for a list of
values, two bits that select one of the four lengths, the count less one, and the value or values. The highest bit comes
first. A mask is the alpha channel, and all four channels of a pixel are written equal.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from rcil.core.reading import DataError

CHANNELS = 4
_VALUE_BITS = 8
_LENGTH_BITS = (3, 4, 8, 16)
_HEADER = 32 + 5 + 4 * 4
_INSIDE = 255
_HINT = "Export the annotation again, as JSON."


def encode_brush(region: npt.NDArray[np.bool_]) -> list[int]:
    """The bytes of a region [height, width]."""
    pixels = region.ravel()
    edges = np.concatenate([[0], np.flatnonzero(np.diff(pixels)) + 1, [pixels.size]])
    bits = [f"{pixels.size * CHANNELS:032b}{_VALUE_BITS - 1:05b}", *(f"{size - 1:04b}" for size in _LENGTH_BITS)]
    for start, end in zip(edges[:-1].tolist(), edges[1:].tolist(), strict=True):
        value = f"{_INSIDE if pixels[start] else 0:0{_VALUE_BITS}b}"
        left = (end - start) * CHANNELS
        while left:
            count = min(left, 1 << _LENGTH_BITS[-1])
            index = next(i for i, size in enumerate(_LENGTH_BITS) if count <= 1 << size)
            bits.append(f"1{index:02b}{count - 1:0{_LENGTH_BITS[index]}b}{value}")
            left -= count
    text = np.frombuffer("".join(bits).encode(), np.uint8) - ord("0")
    packed: list[int] = np.packbits(text).tolist()
    return packed


def decode_brush(data: Sequence[int], size: tuple[int, int], source: str) -> npt.NDArray[np.bool_]:
    """The region [height, width] of an image of this size.

    Raises:
        DataError: The data is damaged, or was drawn on an image of another size.
    """
    if not all(0 <= byte < 256 for byte in data):
        raise DataError(f"{source}: the brush stroke holds numbers that are not bytes", _HINT)
    bits = np.unpackbits(np.array(data, np.uint8))
    text = (bits + ord("0")).tobytes().decode()
    if len(text) < _HEADER:
        raise DataError(f"{source}: the brush stroke ends early", _HINT)
    total, value_bits = int(text[:32], 2), int(text[32:37], 2) + 1
    if total != size[0] * size[1] * CHANNELS or value_bits != _VALUE_BITS:
        pixels = f"{total // CHANNELS} pixels with {value_bits} bits"
        raise DataError(
            f"{source}: the brush stroke covers {pixels}, the image has {size[1]} x {size[0]} pixels",
            "Use the images that were annotated.",
        )
    lengths = [int(text[at : at + 4], 2) + 1 for at in range(37, _HEADER, 4)]
    values = np.zeros(total, np.uint8)
    done, at = 0, _HEADER
    while done < total:
        start = at + 3 + lengths[int(text[at + 1 : at + 3] or "0", 2)]
        count = int(text[at + 3 : start] or "0", 2) + 1
        repeated = text[at : at + 1] == "1"
        at = start + _VALUE_BITS * (1 if repeated else count)
        if at > len(text) or done + count > total:
            raise DataError(f"{source}: the brush stroke is damaged", _HINT)
        found = np.packbits(bits[start:at])
        values[done : done + count] = found
        done += count
    return np.asarray(values.reshape(*size, CHANNELS)[..., -1] > 0)
