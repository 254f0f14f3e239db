"""Images and masks: headers and pixels."""

from __future__ import annotations

from pathlib import Path
from random import Random

from rcil.core.images import read_rgb, stated_size
from rcil.core.masks import decode_mask, read_mask
from rcil_serve.http.protocol.answers import RefusalError
from rcil_serve.http.protocol.body import decode_image
from tools.fuzz.cases import Case, Reader
from tools.fuzz.seeds import damaged_image, jpeg, mask_png, other_images, palette_png, png


def readers() -> dict[str, Reader]:
    """The readers of this module."""
    return {"image": Reader("image", make_image, read_image), "mask": Reader("mask", make_mask, read_labels)}


def read_image(folder: Path) -> None:
    """Read it as all commands read images, and as an upload; a refused upload counts as a refused file."""
    path = folder / "a.jpg"
    data = path.read_bytes()
    size = stated_size(data)
    assert size is None or min(size) > 0
    try:
        decode_image(data, max_pixels=2**20)
    except RefusalError as error:
        if error.status >= 500:
            raise RuntimeError(f"an upload is answered with {error.status}") from error
    pixels = read_rgb(path)
    assert pixels.ndim == 3


def read_labels(folder: Path) -> None:
    """Read it as all commands read masks."""
    path = folder / "a.png"
    assert read_mask(path).ndim == decode_mask(path.read_bytes(), "a mask").ndim == 2


def make_image(random: Random) -> Case:
    """A damaged JPEG or PNG, sometimes another format."""
    seeds = (jpeg(), png(), jpeg(1, 1), png(1, 300))
    return {"a.jpg": damaged_image(random, random.choice(seeds if random.random() < 0.9 else other_images()))}


def make_mask(random: Random) -> Case:
    """A damaged grey or palette PNG."""
    return {"a.png": damaged_image(random, random.choice((mask_png(), palette_png(), mask_png(1, 1))))}
