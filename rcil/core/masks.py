"""Mask files: PNGs whose stored numbers are class ids.

PASCAL VOC stores masks as palette images, where the index is the class id and the colour only decoration. OpenCV turns
an index into its colour, so the PNG is parsed here: chunks, checksums, sizes and compressed stream are checked, and
the verified scanlines are passed to OpenCV as a grey image of the same bytes. A scanline filter works on bytes
regardless of their meaning, so the result is the stored numbers, at the speed of libpng.
"""

from __future__ import annotations

import contextlib
import struct
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import cv2
import numpy as np
import numpy.typing as npt

from rcil.core.files import write_file
from rcil.core.images import MAX_PIXELS, PNG, is_too_large
from rcil.core.mask_classes import insert_chunk
from rcil.core.reading import DataError, read_bytes

Mask = npt.NDArray[np.uint8]
"""Class ids, [height, width]."""

_GREY, _PALETTE = 0, 3
_DEPTHS = {_GREY: (1, 2, 4, 8, 16), _PALETTE: (1, 2, 4, 8)}
_DAMAGED = "The file is damaged: copy or export it again."
_LAYOUT = "A mask is a palette or grey PNG that holds one class id per pixel."


@dataclass(frozen=True)
class _Header:
    width: int
    height: int
    depth: int

    @property
    def row_bytes(self) -> int:
        """Bytes of one scanline, without its leading filter byte."""
        return (self.width * self.depth + 7) // 8


def read_mask(path: Path) -> Mask:
    """The class ids of a mask file: indices of a palette PNG, raw values of a grey one.

    Raises:
        DataError: The file cannot be read, is damaged, too large, interlaced or in true colour.
    """
    return decode_mask(read_bytes(path, "Check that the masks folder is complete."), str(path))


def decode_mask(data: bytes, source: str) -> Mask:
    """`read_mask` for bytes in memory; `source` names them in errors."""
    if not data.startswith(PNG):
        raise DataError(f"{source} is not a PNG file", _LAYOUT)
    chunks = _chunks(data, source)
    header = _header(*next(chunks), source)
    rows = _inflate(b"".join(body for kind, body in chunks if kind == b"IDAT"), header, source)
    stored = _unfilter(rows, header, source)
    if header.depth == 16 and stored.max() > 255:
        raise DataError(f"{source} holds the value {stored.max()}", "Class ids go up to 254, and 255 is ignore.")
    values = stored.astype(np.uint8, copy=False)
    return values if header.depth >= 8 else _unpack(values, header)


def write_mask(path: Path, mask: Mask, palette: Mask | None = None, *, chunk: bytes = b"") -> None:
    """Write class ids as an 8-bit PNG.

    Args:
        path: The file to write.
        mask: Class ids, uint8 [height, width].
        palette: Colour of each id, uint8 [256, 3]; image viewers show it, and the stored numbers stay the ids. Without
            it the file is grey.
        chunk: A chunk of `rcil.core.mask_classes` that records the names of the classes.
    """
    if mask.dtype != np.uint8 or mask.ndim != 2 or mask.size == 0:
        raise DataError(f"cannot write {path}: the mask is {mask.dtype} {mask.shape}", "Give uint8 [height, width].")
    write_file(path, insert_chunk(encode_mask(mask, palette), chunk))


def encode_mask(mask: Mask, palette: Mask | None = None) -> bytes:
    """`write_mask` into memory.

    OpenCV cannot write palettes. It compresses the ids as a grey image, and the same scanlines are valid as indices.
    """
    grey = cv2.imencode(".png", mask)[1].tobytes()
    if palette is None:
        return grey
    height, width = mask.shape
    pixels = b"".join(body for kind, body in _chunks(grey, "the encoded mask") if kind == b"IDAT")
    size = struct.pack(">IIBBBBB", width, height, 8, _PALETTE, 0, 0, 0)
    return _joined((b"IHDR", size), (b"PLTE", palette.tobytes()), (b"IDAT", pixels), (b"IEND", b""))


def _joined(*chunks: tuple[bytes, bytes]) -> bytes:
    """A PNG of these chunks, each given as kind and body."""
    return PNG + b"".join(
        struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body)) for kind, body in chunks
    )


def _chunks(data: bytes, source: str) -> Iterator[tuple[bytes, bytes]]:
    """Kind and body of each chunk up to the end mark; every checksum is compared."""
    view, at = memoryview(data), len(PNG)
    while at + 12 <= len(data):
        (length,) = struct.unpack_from(">I", data, at)
        end = at + 8 + length
        if end + 4 > len(data):
            break
        kind = data[at + 4 : at + 8]
        if struct.unpack_from(">I", data, end)[0] != zlib.crc32(view[at + 4 : end]):
            raise DataError(f"{source}: the checksum of a PNG chunk is wrong", _DAMAGED)
        yield kind, data[at + 8 : end]
        if kind == b"IEND":
            return
        at = end + 4
    raise DataError(f"{source} ends early", _DAMAGED)


def _header(kind: bytes, body: bytes, source: str) -> _Header:
    """Parse the first chunk; raises before decoding if it does not describe a mask."""
    if kind != b"IHDR" or len(body) != 13:
        raise DataError(f"{source} does not begin with a PNG header", _DAMAGED)
    width, height, depth, colour, compression, filtering, interlace = struct.unpack(">IIBBBBB", body)
    if is_too_large((height, width)):
        raise DataError(f"{source} is {width} x {height} pixels", f"The limit is {MAX_PIXELS // 10**6} megapixels.")
    if colour not in _DEPTHS:
        raise DataError(f"{source} is a true-colour or transparent image, not a mask", _LAYOUT)
    if interlace == 1:
        raise DataError(f"{source} is an interlaced PNG", "Save it without interlacing (Adam7).")
    if 0 in (width, height) or depth not in _DEPTHS[colour] or (compression, filtering, interlace) != (0, 0, 0):
        raise DataError(f"{source} has an invalid PNG header", _DAMAGED)
    return _Header(width, height, depth)


def _inflate(packed: bytes, header: _Header, source: str) -> bytes:
    """The scanlines, each with its leading filter byte; never more bytes than the header states."""
    size = (header.row_bytes + 1) * header.height
    stream = zlib.decompressobj()
    try:
        rows = stream.decompress(packed, size + 1)
    except zlib.error as error:
        raise DataError(f"{source}: the compressed pixels are unreadable", _DAMAGED) from error
    if len(rows) != size or not stream.eof:
        raise DataError(f"{source} does not hold {header.width} x {header.height} pixels", _DAMAGED)
    return rows


def _unfilter(rows: bytes, header: _Header, source: str) -> npt.NDArray[np.generic]:
    """Stored bytes (16 bit: numbers) of the scanlines, [height, row bytes or width].

    Several pixels in a byte are filtered as one, so a packed row is a row of 8-bit grey pixels here.
    """
    if np.frombuffer(rows, np.uint8)[:: header.row_bytes + 1].max() > 4:
        raise DataError(f"{source} uses an unknown PNG filter", _DAMAGED)
    size = (header.width, header.height, 16) if header.depth == 16 else (header.row_bytes, header.height, 8)
    header_body = struct.pack(">IIBBBBB", *size, _GREY, 0, 0, 0)
    grey = _joined((b"IHDR", header_body), (b"IDAT", zlib.compress(rows, 0)), (b"IEND", b""))
    with contextlib.suppress(cv2.error):
        decoded = cv2.imdecode(np.frombuffer(grey, np.uint8), cv2.IMREAD_UNCHANGED)
        if decoded is not None:
            return np.asarray(decoded)
    raise DataError(f"{source}: OpenCV refuses {header.width} x {header.height} pixels", "Check OPENCV_IO_MAX_IMAGE_*.")


def _unpack(packed: Mask, header: _Header) -> Mask:
    """Unpack several pixels per byte, the leftmost in the highest bits, into one per byte."""
    shifts = np.arange(8 - header.depth, -1, -header.depth, dtype=np.uint8)
    values = (packed[:, :, None] >> shifts) & np.uint8(2**header.depth - 1)
    return np.ascontiguousarray(values.reshape(header.height, -1)[:, : header.width])
