"""The images that a check runs on: the user's, or generated ones that look like something."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import cv2
import numpy as np
from numpy.typing import NDArray

from rcil.core.errors import RcilError
from rcil.core.images import SUFFIXES, Image, read_rgb
from rcil.core.masks import read_mask
from rcil.core.reading import DataError, existing_folder
from rcil.data.site import pair_files, read_classes
from rcil.data.types import Sample, SegmentationData
from rcil_export.graph.shapes import Extent, InputShape

T = TypeVar("T", Path, Sample, int)
GENERATED, GENERATED_SIZE = 3, (256, 320)
GENERATED_VERSION = 1
"""Counts up when `generated_images` draws other pixels for the same seed and size, since files record the version."""


@dataclass(frozen=True)
class CheckImage:
    """One image, and its mask where there is one."""

    name: str
    pixels: Image
    """RGB [H, W, 3]."""
    truth: NDArray[np.uint8] | None = None
    """Mask values as on disk [H, W]; `CheckImages.data` says what they mean."""


@dataclass(frozen=True)
class CheckImages:
    """Images that are read one at a time, so that any number of them fits into memory."""

    description: str
    readers: tuple[Callable[[], CheckImage], ...]
    data: SegmentationData | None = None
    """Names the classes of the masks; None without masks."""
    files: tuple[Path, ...] = ()
    """The file of every image, in the order of the readers; empty for generated images."""

    def __len__(self) -> int:
        return len(self.readers)

    def __iter__(self) -> Iterator[CheckImage]:
        return (read() for read in self.readers)

    def some(self, indices: Iterable[int], description: str) -> CheckImages:
        """The images at these indices, in this order."""
        chosen = list(indices)
        files = tuple(self.files[index] for index in chosen) if self.files else ()
        return CheckImages(description, tuple(self.readers[index] for index in chosen), self.data, files)


def images_for(folder: Path | None, shape: InputShape | None, *, most: int | None = None) -> CheckImages:
    """The images of `folder`, or generated ones without a folder.

    Args:
        folder: A site folder, whose `val` images and masks are used (`test`, or all, if it has no `val`), or any folder
            with JPEG and PNG images (see `photographs_of`).
        shape: Sizes that the artefacts take; generated images have the usual one. None: any.
        most: Use this many, spread evenly over the folder.
    """
    if folder is None:
        size = GENERATED_SIZE if shape is None else shape.usual[1:]
        return generated_images(min(most or GENERATED, GENERATED), size)
    existing_folder(folder, "Give a folder with images.")
    described = (folder / "classes.txt").exists() or (folder / "dataset.yaml").exists()
    if described and (folder / "masks").is_dir():
        return _site_images(folder, most)
    root = photographs_of(folder)
    paths = spread(image_files(root), most)
    return CheckImages(f"{len(paths)} images of {folder}", _readers(root, paths), files=tuple(paths))


def images_of(folder: Path, names: Iterable[str]) -> CheckImages:
    """The images below `folder` with these names, as `image_files` finds them."""
    paths = [folder / name for name in names]
    return CheckImages(f"{len(paths)} images of {folder}", _readers(folder, paths), files=tuple(paths))


def image_files(folder: Path) -> list[Path]:
    """All images in a folder, at any depth, sorted; an error if there are none."""
    paths = sorted(path for path in folder.rglob("*") if path.suffix.lower() in SUFFIXES and path.is_file())
    if not paths:
        raise DataError(f"{folder} holds no images", f"Give a folder with {', '.join(SUFFIXES)} files.")
    return paths


def _readers(root: Path, paths: Iterable[Path]) -> tuple[Callable[[], CheckImage], ...]:
    return tuple(_reader(path.relative_to(root).as_posix(), path) for path in paths)


def photographs_of(folder: Path) -> Path:
    """The part `images` of a folder that has one, so that masks beside it are not taken for photographs."""
    return folder / "images" if (folder / "images").is_dir() else folder


def _site_images(folder: Path, most: int | None) -> CheckImages:
    pairing = pair_files(folder)
    if pairing.problems:
        path, message = pairing.problems[0]
        raise DataError(f"{path}: {message}", f"Run: rcil data check {folder}")
    splits = pairing.splits
    chosen = next(
        (splits[name] for name in ("val", "test") if splits.get(name)), [s for p in splits.values() for s in p]
    )
    samples = tuple(spread(chosen, most))
    if not samples:
        raise DataError(f"{folder} holds no images", f"Run: rcil data check {folder}")
    data = SegmentationData(folder, read_classes(folder), {"check": samples})
    readers = tuple(_reader(sample.name, sample.image, sample.mask) for sample in samples)
    files = tuple(sample.image for sample in samples)
    return CheckImages(f"{len(samples)} images with masks of {folder}", readers, data, files)


def spread(items: list[T], most: int | None) -> list[T]:
    """At most this many, evenly spread."""
    if most is None or len(items) <= most:
        return items
    return [items[round(position)] for position in np.linspace(0, len(items) - 1, most)]


def _reader(name: str, image: Path, mask: Path | None = None) -> Callable[[], CheckImage]:
    def read() -> CheckImage:
        pixels = read_rgb(image)
        truth = None if mask is None else read_mask(mask)
        if truth is not None and truth.shape != pixels.shape[:2]:
            raise DataError(f"{mask} has not the size of its image", "Run `rcil data check` on the folder.")
        return CheckImage(name, pixels, truth)

    return read


def generated_images(count: int = GENERATED, size: tuple[int, int] = GENERATED_SIZE, *, seed: int = 0) -> CheckImages:
    """Gradients with shapes and a little noise: flat areas, edges and texture, as photographs have. No masks.

    Each uses all pixel values from 0 to 255.

    Args:
        count: How many.
        size: Height and width.
        seed: Image i depends on the seed, on i and on the size alone.
    """

    def reader(index: int) -> Callable[[], CheckImage]:
        return lambda: CheckImage(f"generated {index}", _scene(np.random.default_rng([seed, index]), *size))

    return CheckImages(f"{count} generated images", tuple(reader(index) for index in range(count)))


def _scene(random: np.random.Generator, height: int, width: int) -> Image:
    corners = random.uniform(0, 255, (2, 2, 3)).astype(np.float32)
    canvas = np.array(cv2.resize(corners, (width, height), interpolation=cv2.INTER_LINEAR), np.float32)
    for _ in range(int(random.integers(6, 14))):
        centre = (int(random.integers(0, width)), int(random.integers(0, height)))
        axes = (int(random.integers(1, 2 + width // 4)), int(random.integers(1, 2 + height // 4)))
        colour = tuple(float(value) for value in random.uniform(0, 255, 3))
        if random.random() < 0.5:
            cv2.ellipse(canvas, centre, axes, float(random.uniform(0, 180)), 0, 360, colour, -1)
        else:
            cv2.rectangle(canvas, centre, (centre[0] + axes[0], centre[1] + axes[1]), colour, -1)
    canvas += random.normal(0, 6, canvas.shape).astype(np.float32)
    low, high = canvas.min(), canvas.max()
    return np.asarray(np.rint(255 * (canvas - low) / (high - low)), np.uint8)


def common_shape(first: InputShape | None, second: InputShape | None) -> InputShape | None:
    """The image sizes that both take; None: any."""
    if first is None or second is None:
        return first or second
    return InputShape(
        batch=Extent.of(1),
        height=_overlap(first.height, second.height, first, second),
        width=_overlap(first.width, second.width, first, second),
    )


def _overlap(a: Extent, b: Extent, first: InputShape, second: InputShape) -> Extent:
    low, high = max(a.low, b.low), min(a.high, b.high)
    if low > high:
        raise RcilError(
            f"the two take no common image size: {first} and {second} (batch x height x width)",
            "Export one of them again with the --size of the other.",
        )
    return Extent(low=low, usual=min(max(a.usual, low), high), high=high)


def fit(image: CheckImage, shape: InputShape | None, scale: float = 1.0) -> CheckImage:
    """The image at a size that `shape` takes: each side that is too short or too long becomes the nearest that fits.

    Photographs are averaged where they shrink and interpolated where they grow; masks take the nearest value.

    Args:
        image: The image, and its mask where there is one.
        shape: Sizes that can be used; None: any.
        scale: Factor by which the sides are multiplied first, where several sizes can be used.
    """
    height, width = image.pixels.shape[:2]
    wanted = width, height
    if shape is None or not shape.one_size:
        wanted = max(1, round(width * scale)), max(1, round(height * scale))
    if shape is not None:
        wanted = _clamp(wanted[0], shape.width), _clamp(wanted[1], shape.height)
    if wanted == (width, height):
        return image
    shrinks = wanted[0] * wanted[1] < height * width
    pixels = cv2.resize(image.pixels, wanted, interpolation=cv2.INTER_AREA if shrinks else cv2.INTER_LINEAR)
    truth = None if image.truth is None else cv2.resize(image.truth, wanted, interpolation=cv2.INTER_NEAREST_EXACT)
    return CheckImage(image.name, np.asarray(pixels, np.uint8), None if truth is None else np.asarray(truth, np.uint8))


def _clamp(side: int, extent: Extent) -> int:
    return min(max(side, extent.low), extent.high)
