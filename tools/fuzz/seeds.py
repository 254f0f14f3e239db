"""Small valid files, which are then damaged."""

from __future__ import annotations

import functools
import json
import struct
import zlib
from random import Random
from typing import Any

import cv2
import numpy as np

from rcil.core.images import PNG
from rcil.model.architecture import RC, Architecture
from rcil.model.metadata import LineageEntry, Metadata, class_table
from rcil_export.graph.interface import Interface
from rcil_export.graph.shapes import parse_shape
from tools.fuzz.cases import Case
from tools.fuzz.mutate import damaged

NAMES = [["background", "ball"], ["cone"]]
ODD_NAMES = ("a\n", " a", "a.b", "é", "\udcff", "-a", "A", "x" * 200, "a'", "[a]", "*", "a\\b", ".a", "a.png")


@functools.cache
def metadata_document() -> dict[str, Any]:
    """Metadata of a model as its header contains it."""
    arch = Architecture(
        backbone="resnet18", blocks=(1, 1, 1, 1), width=2, head_width=2, rc=RC(old="merged", frozen=True)
    )
    history = tuple(LineageEntry(step=step, source="train", seed=0, metrics={"miou": 0.5}) for step in range(2))
    metadata = Metadata(architecture=arch, classes=class_table(NAMES), step=1, lineage=history, method="rcil")
    document: dict[str, Any] = json.loads(metadata.model_dump_json())
    return document


@functools.cache
def interface_document() -> dict[str, Any]:
    """Interface of a graph as its file describes it."""
    interface = Interface(shape=parse_shape(None, "4x4:8x12:64x64", "1:1:4"), outputs=("mask", "confidence"))
    document: dict[str, Any] = json.loads(interface.model_dump_json())
    return document


@functools.cache
def pixels(height: int = 6, width: int = 8) -> np.ndarray[Any, np.dtype[np.uint8]]:
    """A random image [H, W, 3]."""
    return np.random.default_rng(0).integers(0, 256, (height, width, 3), dtype=np.uint8)


@functools.cache
def mask(height: int = 6, width: int = 8) -> np.ndarray[Any, np.dtype[np.uint8]]:
    """Class ids 0 to 2 in vertical stripes [H, W]."""
    return (np.arange(width) * 3 // width).astype(np.uint8)[None].repeat(height, axis=0)


@functools.cache
def png(height: int = 6, width: int = 8) -> bytes:
    """The image as a PNG."""
    return cv2.imencode(".png", pixels(height, width))[1].tobytes()


@functools.cache
def jpeg(height: int = 6, width: int = 8) -> bytes:
    """The image as a JPEG."""
    return cv2.imencode(".jpg", pixels(height, width))[1].tobytes()


@functools.cache
def mask_png(height: int = 6, width: int = 8) -> bytes:
    """Class ids as a grey PNG."""
    return cv2.imencode(".png", mask(height, width))[1].tobytes()


@functools.cache
def palette_png() -> bytes:
    """Class ids as a palette PNG with two bits per pixel."""
    rows = b"".join(b"\0" + bytes((0b00000101, 0b01011010)) for _ in range(6))
    return joined(
        [
            (b"IHDR", struct.pack(">IIBBBBB", 8, 6, 2, 3, 0, 0, 0)),
            (b"PLTE", bytes((0, 0, 0, 200, 0, 0, 0, 200, 0, 0, 0, 200))),
            (b"IDAT", zlib.compress(rows)),
            (b"IEND", b""),
        ]
    )


@functools.cache
def other_images() -> tuple[bytes, ...]:
    """The image in formats that are not accepted, although OpenCV may decode them."""
    return tuple(cv2.imencode(ending, pixels())[1].tobytes() for ending in (".bmp", ".webp", ".tiff", ".ppm"))


def joined(chunks: list[tuple[bytes, bytes]]) -> bytes:
    """A PNG of these chunks, with correct lengths and checksums."""
    parts = (
        struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body)) for kind, body in chunks
    )
    return PNG + b"".join(parts)


def chunks_of(data: bytes) -> list[tuple[bytes, bytes]]:
    """Kind and body of every chunk of a valid PNG."""
    found, at = [], len(PNG)
    while at + 12 <= len(data):
        (length,) = struct.unpack_from(">I", data, at)
        found.append((data[at + 4 : at + 8], data[at + 8 : at + 8 + length]))
        at += 12 + length
    return found


def damaged_png(random: Random, data: bytes) -> bytes:
    """A PNG with missing, duplicate or changed chunks, but correct checksums."""
    chunks = chunks_of(data)
    if not chunks:
        return damaged(random, data)
    index = random.randrange(len(chunks))
    kind, body = chunks[index]
    match random.randrange(6):
        case 0:
            del chunks[index]
        case 1:
            chunks.insert(random.randrange(len(chunks) + 1), (kind, body))
        case 2 if kind == b"IHDR":
            sides = random.choices((0, 1, 8, 1000, 12_000, 200_000, 2**31 - 1, 2**32 - 1), k=2)
            chunks[index] = (kind, struct.pack(">II", *sides) + body[8:])
        case 3 if data in (png(), mask_png(), palette_png()) and kind == b"IDAT":
            chunks[index] = (kind, zlib.compress(damaged(random, zlib.decompress(body))))
        case 4:
            body = zlib.compress(bytes(random.choice((10, 1000, 10**6))))
            chunks.insert(index, (random.choice((b"IDAT", b"iCCP", b"zTXt", b"fcTL", b"acTL", b"eXIf", b"tRNS")), body))
        case _:
            chunks[index] = (kind, damaged(random, body))
    return joined(chunks)


def damaged_image(random: Random, data: bytes) -> bytes:
    """An image file with damaged bytes or chunks, or with the content of another file."""
    if data.startswith(PNG) and random.random() < 0.5:
        return damaged_png(random, data)
    others = (png(), jpeg(), mask_png(), *other_images())
    return random.choice(others) if random.random() < 0.05 else damaged(random, data, others)


def misnamed(random: Random, files: Case, name: str) -> Case:
    """Give one file, or all files with the same stem, an odd name."""
    odd, stem = random.choice(ODD_NAMES), _stem(name)
    both = random.random() < 0.5
    return {
        _renamed(path, odd) if path == name or (both and _stem(path) == stem) else path: files[path] for path in files
    }


def _stem(path: str) -> str:
    return path.rpartition("/")[2].rpartition(".")[0].partition("_")[0]


def _renamed(path: str, stem: str) -> str:
    """Replace the stem up to its first underscore."""
    folder, slash, file = path.rpartition("/")
    name, _, ending = file.rpartition(".")
    _, line, rest = name.partition("_")
    return f"{folder}{slash}{stem}{line}{rest}.{ending}"
