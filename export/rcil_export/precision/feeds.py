"""Images for measuring a graph: the user's own, or generated ones."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

import cv2
import numpy as np
from numpy.typing import NDArray

from rcil.checkpoint.metadata import Metadata
from rcil.data.errors import DataError, existing_folder, readable
from rcil.images import SUFFIXES, Image, read_rgb
from rcil_export.interface import INPUT_NAME, Interface

Feed = dict[str, NDArray[Any]]
GENERATED = 4
"""How many images are made up where none are given."""


@dataclass(frozen=True)
class Feeds:
    """What a session reads, batch by batch; iterating again reads the files again, so nothing stays in memory.

    `image` is uint8 [N, H, W, 3] or normalised float32 [N, 3, H, W], as the interface says, in its usual size and in
    the model's colour order. The last batch is filled up with images from the start.
    """

    metadata: Metadata
    interface: Interface
    images: tuple[Path, ...]
    """Files to read; none: `GENERATED` images are made up."""
    seed: int = 0

    @property
    def generated(self) -> bool:
        """Whether the images are made up, so that ranges say little about a site."""
        return not self.images

    @property
    def count(self) -> int:
        """Number of images."""
        return len(self.images) or GENERATED

    def __len__(self) -> int:
        return -(-self.count // self.interface.shape.usual[0])

    def __iter__(self) -> Iterator[Feed]:
        batch = self.interface.shape.usual[0]
        for start in range(0, self.count, batch):
            places = [place % self.count for place in range(start, start + batch)]
            yield {INPUT_NAME: np.stack([self._input(self._image(place)) for place in places])}

    def first(self, batches: int) -> list[Feed]:
        """The first batches, in memory."""
        return list(islice(self, batches))

    def _image(self, place: int) -> Image:
        _, height, width = self.interface.shape.usual
        if self.generated:
            return generated_image(self.seed + place, height, width)
        return resized(read_rgb(self.images[place]), height, width)

    def _input(self, image: Image) -> NDArray[Any]:
        ordered = image if self.metadata.colour_order == "RGB" else image[..., ::-1]
        if self.interface.input == "uint8":
            return np.ascontiguousarray(ordered)
        mean, std = np.array(self.metadata.mean), np.array(self.metadata.std)
        return np.ascontiguousarray(((ordered / 255 - mean) / std).transpose(2, 0, 1), np.float32)


def find_feeds(
    folder: Path | None, metadata: Metadata, interface: Interface, *, limit: int = 64, seed: int = 0
) -> Feeds:
    """Feeds from the images of a folder, or generated ones if there is no folder.

    Args:
        folder: Holds images, at any depth; of a site folder the part `images` is taken, so that masks are not.
        metadata: Says how the model wants its images.
        interface: Says in which size and type.
        limit: Of more images than this, so many are taken, evenly spread over the sorted names.
        seed: Of generated images.
    """
    if limit < 1:
        raise DataError(f"{limit} images are too few to measure with", "Allow at least one.")
    if folder is None:
        return Feeds(metadata, interface, (), seed)
    root = existing_folder(folder, "Give a folder with images of your site.")
    root = root / "images" if (root / "images").is_dir() else root
    with readable(root):
        paths = sorted(path for path in root.rglob("*") if path.suffix.lower() in SUFFIXES and path.is_file())
    if not paths:
        raise DataError(f"{root} holds no images", f"Put images there that end in {', '.join(SUFFIXES)}.")
    places = np.linspace(0, len(paths) - 1, min(limit, len(paths))).round().astype(int)
    return Feeds(metadata, interface, tuple(paths[place] for place in places), seed)


def resized(image: Image, height: int, width: int) -> Image:
    """[H, W, 3] -> [height, width, 3]; means over areas where it gets smaller."""
    if image.shape[:2] == (height, width):
        return image
    how = cv2.INTER_AREA if height * width < image.shape[0] * image.shape[1] else cv2.INTER_LINEAR
    return np.asarray(cv2.resize(image, (width, height), interpolation=how), np.uint8)


def generated_image(seed: int, height: int, width: int) -> Image:
    """Smooth colour noise of three scales [height, width, 3] that uses the whole range of pixel values."""
    random = np.random.default_rng(seed)
    total = np.zeros((height, width, 3))
    for cells in (2, 8, 32):
        coarse = random.normal(size=(min(cells, height), min(cells, width), 3))
        smooth = np.asarray(cv2.resize(coarse, (width, height), interpolation=cv2.INTER_LINEAR), np.float64)
        total += smooth.reshape(total.shape) / cells**0.5
    low, high = total.min(axis=(0, 1)), total.max(axis=(0, 1))
    return np.asarray(255 * (total - low) / np.maximum(high - low, 1e-9), np.uint8)
