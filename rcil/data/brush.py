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
    starts = np.concatenate([[0], np.flatnonzero(np.diff(pixels)) + 1])
    runs = np.diff(np.append(starts, pixels.size)) * CHANNELS
    longest = 1 << _LENGTH_BITS[-1]
    blocks = -(-runs // longest)
    counts = np.full(blocks.sum(), longest)
    counts[np.cumsum(blocks) - 1] = runs - (blocks - 1) * longest
    values = np.repeat(np.where(pixels[starts], _INSIDE, 0), blocks)
    index = np.searchsorted(1 << np.array(_LENGTH_BITS), counts)
    length = np.array(_LENGTH_BITS)[index]
    codes = ((4 + index) << length | (counts - 1)) << _VALUE_BITS | values
    header = f"{pixels.size * CHANNELS:032b}{_VALUE_BITS - 1:05b}" + "".join(f"{size - 1:04b}" for size in _LENGTH_BITS)
    bits = np.concatenate([np.array(list(header), np.uint8), _bits(codes, 3 + length + _VALUE_BITS)])
    packed: list[int] = np.packbits(bits).tolist()
    return packed


def _bits(codes: npt.NDArray[np.int64], widths: npt.NDArray[np.int64]) -> npt.NDArray[np.uint8]:
    """The bits of numbers one after another, each with its own width, the highest bit first."""
    ends = np.cumsum(widths)
    bits = np.zeros(ends[-1], np.uint8)
    for bit in range(int(widths.max())):
        wide = widths > bit
        bits[ends[wide] - 1 - bit] = codes[wide] >> bit & 1
    return bits


def decode_brush(data: Sequence[int], size: tuple[int, int], source: str) -> npt.NDArray[np.bool_]:
    """The region [height, width] of an image of this size.

    Raises:
        DataError: The data is damaged, or was drawn on an image of another size.
    """
    try:
        stream = bytes(data)
    except ValueError as error:
        raise DataError(f"{source}: the brush stroke holds numbers that are not bytes", _HINT) from error
    if 8 * len(stream) < _HEADER:
        raise DataError(f"{source}: the brush stroke ends early", _HINT)
    total, value_bits = _word(stream, 0), (_word(stream, 32) >> 27) + 1
    if total != size[0] * size[1] * CHANNELS or value_bits != _VALUE_BITS:
        pixels = f"{total // CHANNELS} pixels with {value_bits} bits"
        raise DataError(
            f"{source}: the brush stroke covers {pixels}, the image has {size[1]} x {size[0]} pixels",
            "Use the images that were annotated.",
        )
    lengths = [(_word(stream, at) >> 28) + 1 for at in range(37, _HEADER, 4)]
    values = _values(stream, lengths, total)
    if values is None:
        raise DataError(f"{source}: the brush stroke is damaged", _HINT)
    return np.asarray(values.reshape(*size, CHANNELS)[..., -1] > 0)


def _word(stream: bytes, at: int) -> int:
    """The 32 bits from a bit on; the stream continues with zeros."""
    first = at >> 3
    return int.from_bytes(stream[first : first + 5].ljust(5, b"\0")) >> (8 - (at & 7)) & 0xFFFFFFFF


def _values(stream: bytes, lengths: list[int], total: int) -> npt.NDArray[np.uint8] | None:
    """The values of all blocks [total]; None if the blocks end early or hold more."""
    counts: list[int] = []
    values: list[int] = []
    done, at = 0, _HEADER
    while done < total:
        word = _word(stream, at)
        length = lengths[word >> 29 & 3]
        count = (word >> (29 - length) & (1 << length) - 1) + 1
        start = at + 3 + length
        repeated = word >> 31
        at = start + _VALUE_BITS * (1 if repeated else count)
        if at > 8 * len(stream) or done + count > total:
            return None
        if repeated:
            counts.append(count)
            values.append(word >> (21 - length) & 255)
        else:
            counts += [1] * count
            values += [_word(stream, bit) >> 24 for bit in range(start, at, _VALUE_BITS)]
        done += count
    return np.repeat(np.array(values, np.uint8), counts)
