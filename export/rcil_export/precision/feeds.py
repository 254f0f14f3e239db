"""Images for measuring a graph: the user's own, or generated ones."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rcil.core.reading import DataError
from rcil.model.metadata import Metadata
from rcil_export.graph.interface import INPUT_NAME, Interface
from rcil_export.graph.preprocessing import image_input
from rcil_export.graph.shapes import InputShape
from rcil_export.images import CheckImages, fit, images_for, images_of, photographs_of

Feed = dict[str, NDArray[Any]]


@dataclass(frozen=True)
class Feeds:
    """What a session reads, batch by batch; iterating again reads the files again, so nothing stays in memory.

    `image` is uint8 [N, H, W, 3] or normalised float32 [N, 3, H, W], as the interface says, in its usual size and in
    the model's colour order. The last batch is filled up with images from the start.
    """

    metadata: Metadata
    interface: Interface
    images: CheckImages
    generated: bool
    """Whether the images are made up, so that ranges say little about a site."""
    root: Path | None = None
    """The folder that the images' names start from; None for generated images."""

    @property
    def count(self) -> int:
        """Number of images."""
        return len(self.images)

    def __len__(self) -> int:
        return -(-self.count // self.interface.shape.usual[0])

    def __iter__(self) -> Iterator[Feed]:
        batch = self.interface.shape.usual[0]
        for start in range(0, self.count, batch):
            places = [place % self.count for place in range(start, start + batch)]
            yield {INPUT_NAME: np.stack([self._input(place) for place in places])}

    def first(self, batches: int) -> list[Feed]:
        """The first batches, in memory."""
        return list(islice(self, batches))

    def _input(self, place: int) -> NDArray[Any]:
        _, height, width = self.interface.shape.usual
        image = fit(self.images.readers[place](), InputShape.of(height, width))
        return image_input(self.metadata, self.interface, image.pixels)


def find_feeds(folder: Path | None, metadata: Metadata, interface: Interface, *, limit: int = 64) -> Feeds:
    """Feeds from the images of a folder, or generated ones if there is no folder.

    Args:
        folder: Holds images, at any depth; of a site folder the part `images` is taken, so that masks are not.
        metadata: Says how the model wants its images.
        interface: Says in which size and type.
        limit: Of more images than this, so many are taken, evenly spread over the sorted names.
    """
    if limit < 1:
        raise DataError(f"{limit} images are too few to measure with", "Allow at least one.")
    root = None if folder is None else photographs_of(folder)
    images = images_for(root, interface.shape, most=limit)
    return Feeds(metadata, interface, images, generated=folder is None, root=root)


def feeds_from(root: Path, names: Iterable[str], metadata: Metadata, interface: Interface) -> Feeds:
    """Feeds from the images below `root` with these names."""
    return Feeds(metadata, interface, images_of(root, names), generated=False, root=root)
