"""Images for measuring a graph: the user's own, or generated ones; chosen, recorded, and found again."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray

from rcil.core.errors import CheckpointError
from rcil.core.files import sha256_of
from rcil.core.reading import DataError, existing_folder
from rcil.model.metadata import Metadata
from rcil_export.graph.interface import INPUT_NAME, Interface
from rcil_export.graph.onnx_file import description_of
from rcil_export.graph.preprocessing import image_input
from rcil_export.graph.shapes import InputShape
from rcil_export.images import (
    GENERATED_VERSION,
    CheckImages,
    fit,
    generated_images,
    image_files,
    images_for,
    images_of,
    photographs_of,
    spread,
)
from rcil_export.precision.record import ConversionRecord, GeneratedImages, RecordedImage

Feed = dict[str, NDArray[Any]]
MAX_CALIBRATION = 48
"""Images whose values fill the histograms."""
MAX_JUDGED = 32
"""Images that masks are compared on."""
MIN_CALIBRATION = 8
"""If judging leaves fewer images than these to calibrate on, the folder is split instead."""
JUDGED_EVERY = 3
"""Every third image of a folder that is split is judged on."""
MIN_TO_SPLIT = 2 * JUDGED_EVERY
"""A smaller folder is not split: its images both calibrate and judge, and the report says so."""


@dataclass(frozen=True)
class Feeds:
    """The inputs of a session, batch by batch; iterating again reads the files again, so nothing stays in memory.

    `image` is uint8 [N, H, W, 3] or normalised float32 [N, 3, H, W], as the interface says, in its usual size and in
    the model's colour order. The last batch is filled up with images from the start.
    """

    metadata: Metadata
    interface: Interface
    images: CheckImages
    root: Path | None = None
    """The folder that the names of the images are relative to; None for generated images."""

    @property
    def count(self) -> int:
        """Number of images."""
        return len(self.images)

    def __len__(self) -> int:
        return -(-self.count // self.interface.shape.usual[0])

    def __iter__(self) -> Iterator[Feed]:
        batch = self.interface.shape.usual[0]
        for start in range(0, self.count, batch):
            indices = [index % self.count for index in range(start, start + batch)]
            yield {INPUT_NAME: np.stack([self._input(index) for index in indices])}

    def first(self, batches: int) -> list[Feed]:
        """The first batches, in memory."""
        return list(islice(self, batches))

    def _input(self, index: int) -> NDArray[Any]:
        _, height, width = self.interface.shape.usual
        image = fit(self.images.readers[index](), InputShape.of(height, width))
        return image_input(self.metadata, self.interface, image.pixels)


def find_feeds(folder: Path | None, metadata: Metadata, interface: Interface, *, limit: int = 64) -> Feeds:
    """Feeds from the images of a folder, or generated ones if there is no folder.

    Args:
        folder: Contains images, at any depth; of a site folder only `images` is used, so that masks are not.
        metadata: States the colour order and normalisation of the images.
        interface: States their size and type.
        limit: Use at most this many, evenly spread over the sorted names.
    """
    if limit < 1:
        raise DataError(f"{limit} images are too few to measure with", "Allow at least one.")
    root = None if folder is None else photographs_of(folder)
    images = images_for(root, interface.shape, most=limit)
    return Feeds(metadata, interface, images, root)


@dataclass(frozen=True)
class ImageSplit:
    """Two sets of images."""

    feeds: Feeds
    """The images to calibrate on."""
    judged: CheckImages
    """The images to compare masks on, with their own masks if there are any."""
    apart: bool
    """Whether no image is in both sets."""

    @property
    def note(self) -> str:
        """One sentence for the user."""
        if self.apart:
            return f"Ranges come from {self.feeds.count} images; {len(self.judged)} others judge the masks."
        return (
            f"The same {self.feeds.count} images give the ranges and judge the masks, which flatters int8: give "
            f"--calibrate a folder with at least {MIN_TO_SPLIT} images."
        )


def split_images(calibrate: Path | None, images: Path | None, metadata: Metadata, interface: Interface) -> ImageSplit:
    """Split the images for an int8 conversion; the same folders always give the same split.

    The masks are judged on `images`, or on the images of `calibrate` that `images_for` chooses: the `val` part of a
    site folder. The other images of `calibrate` give the ranges. If too few are left, every third image judges and the
    others give the ranges.

    Args:
        calibrate: Images of the site; None: generated ones.
        images: Images that the user wants to compare on.
        metadata: States the colour order and normalisation of the images.
        interface: States their size and type.
    """
    shape = interface.shape
    if calibrate is None:
        judged = images_for(images, shape, most=MAX_JUDGED)
        return ImageSplit(find_feeds(None, metadata, interface), judged, apart=images is not None)
    root = photographs_of(calibrate)
    candidates = images_for(images or calibrate, shape)
    everything = image_files(root)
    rest = _without(everything, candidates)
    apart = len(rest) >= min(MIN_CALIBRATION, len(everything))
    if not apart and len(everything) >= MIN_TO_SPLIT and len(candidates) >= MIN_TO_SPLIT:
        third = range(JUDGED_EVERY - 1, len(candidates), JUDGED_EVERY)
        candidates = candidates.some(third, f"{len(third)} images of {images or calibrate}")
        rest, apart = _without(everything, candidates), True
    chosen = spread(rest if apart else everything, MAX_CALIBRATION)
    calibrating = images_of(root, [path.relative_to(root).as_posix() for path in chosen])
    return ImageSplit(Feeds(metadata, interface, calibrating, root), _at_most(candidates, MAX_JUDGED), apart)


def _without(paths: list[Path], images: CheckImages) -> list[Path]:
    """The paths that are not files of `images`."""
    known = {path.resolve() for path in images.files}
    return [path for path in paths if path.resolve() not in known]


def _at_most(images: CheckImages, most: int) -> CheckImages:
    if len(images) <= most:
        return images
    indices = spread(list(range(len(images))), most)
    return images.some(indices, images.description.replace(str(len(images)), str(most), 1))


def recorded_images(feeds: Feeds) -> tuple[RecordedImage, ...] | GeneratedImages:
    """The names and hashes of the images of `feeds`."""
    if feeds.root is None:
        _, height, width = feeds.interface.shape.usual
        return GeneratedImages(count=feeds.count, size=(height, width))
    root = feeds.root
    return tuple(
        RecordedImage(name=path.relative_to(root).as_posix(), sha256=sha256_of(path)) for path in feeds.images.files
    )


def recorded_feeds(document: onnx.ModelProto, record: ConversionRecord, folder: Path | None) -> Feeds:
    """The images that the record names, in their order; an error names the first one that is missing or changed."""
    metadata, interface = description_of(document)
    if isinstance(record.images, GeneratedImages):
        asked = record.images
        if asked.version != GENERATED_VERSION:
            raise CheckpointError(
                f"the file was measured on generated images of version {asked.version}; this rcil draws version "
                f"{GENERATED_VERSION}",
                f"Use rcil {record.versions.get('rcil', 'of that time')}, or export the file again.",
            )
        images = generated_images(asked.count, asked.size, seed=asked.seed)
        return Feeds(metadata, interface, images)
    if folder is None:
        raise DataError(
            f"the file was measured on {len(record.images)} images, and no folder with them was given",
            "Give the folder with --calibrate.",
        )
    root = photographs_of(existing_folder(folder, "Give the folder with the calibration images."))
    return Feeds(metadata, interface, images_of(root, _found(root, record.images)), root)


def _found(root: Path, wanted: Iterable[RecordedImage]) -> list[str]:
    """The names under which the recorded images are below `root`: their own, or those of files with the same bytes."""
    by_hash: dict[str, str] | None = None
    names = []
    for image in wanted:
        path = root / image.name
        inside = not Path(image.name).is_absolute() and ".." not in Path(image.name).parts
        there = inside and path.is_file()
        if there and sha256_of(path) == image.sha256:
            names.append(image.name)
            continue
        if by_hash is None:
            by_hash = {sha256_of(other): other.relative_to(root).as_posix() for other in image_files(root)}
        if image.sha256 not in by_hash:
            what = "has changed since the conversion" if there else "is missing"
            raise DataError(
                f"{path}: this calibration image {what} (sha256 {image.sha256[:12]} was recorded)",
                "Give the folder with the images that the file was calibrated on.",
            )
        names.append(by_hash[image.sha256])
    return names
