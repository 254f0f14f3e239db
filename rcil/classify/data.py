"""Labelled images: handwritten digits in memory, or one folder of images per class, which stay on disk.

Nothing here imports torch.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import overload

import cv2
import numpy as np
from numpy.typing import NDArray

from rcil.classify.task import DataSection, ProtocolSection
from rcil.core.errors import ConfigError, MissingDependencyError
from rcil.core.files import sha256_of
from rcil.core.images import SUFFIXES, Image, read_rgb
from rcil.core.reading import DataError, existing_folder, is_text, printable, readable

TEST_SHARE = 0.3
HELD_OUT_SHARE = 0.2
SPLIT_SEED = 0
"""All runs use the same split; seeds change the class order and the training, not the test images."""
LAYOUT_HINT = "Put images into train/CLASS/ and val/CLASS/, the same classes in both."
Labels = NDArray[np.int64]


@dataclass(frozen=True)
class ImageFiles:
    """Images on disk, which are read and resized when they are needed."""

    paths: tuple[Path, ...]
    size: int
    """Height and width of the images."""

    def __len__(self) -> int:
        return len(self.paths)

    @overload
    def __getitem__(self, picked: int) -> Image: ...
    @overload
    def __getitem__(self, picked: NDArray[np.int64]) -> ImageFiles: ...

    def __getitem__(self, picked: int | NDArray[np.int64]) -> Image | ImageFiles:
        """One image, RGB [S, S, 3], or a selection of files."""
        if isinstance(picked, np.ndarray):
            return ImageFiles(tuple(self.paths[index] for index in picked), self.size)
        return _resized(read_rgb(self.paths[picked]), self.size)


Images = Image | ImageFiles
"""RGB images [N, S, S, 3] in memory, or files of such."""


@dataclass(frozen=True)
class LabelledImages:
    """Images of one size with their labels."""

    images: Images
    labels: Labels
    """Indices into the class names [N]."""

    def __getitem__(self, picked: NDArray[np.int64]) -> LabelledImages:
        return LabelledImages(self.images[picked], self.labels[picked])

    def of_class(self, label: int) -> NDArray[np.int64]:
        """Indices of the images of a class."""
        return np.flatnonzero(self.labels == label)


@dataclass(frozen=True)
class ClassificationData:
    """Training and test images."""

    names: tuple[str, ...]
    train: LabelledImages
    test: LabelledImages

    def digest(self) -> str:
        """Hex digest of the training images, or of the contents of their files, and of the labels."""
        images, digest = self.train.images, hashlib.sha256()
        if isinstance(images, ImageFiles):
            for path in images.paths:
                digest.update(f"{path.parent.name}/{path.name}\0{sha256_of(path)}\n".encode(errors="surrogateescape"))
        else:
            digest.update(images.tobytes())
        digest.update(self.train.labels.tobytes())
        return digest.hexdigest()


def load_data(section: DataSection) -> ClassificationData:
    """Load the images of a task; with `evaluate: held_out`, the test images are not used."""
    data = _digits(section.size) if section.root is None else _folder(section.root, section.size)
    if section.evaluate == "test":
        return data
    kept, held_out = stratified(data.train.labels, HELD_OUT_SHARE, SPLIT_SEED)
    return ClassificationData(data.names, data.train[kept], data.train[held_out])


def stratified(labels: Labels, share: float, seed: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Split indices into a larger and a smaller part, which gets `share` of the images of every class."""
    random = np.random.default_rng(seed)
    small = [random.permutation(np.flatnonzero(labels == c)) for c in np.unique(labels)]
    second = np.sort(np.concatenate([indices[: round(share * len(indices))] for indices in small]))
    return np.setdiff1d(np.arange(len(labels)), second), second


def _digits(size: int) -> ClassificationData:
    try:
        from sklearn.datasets import load_digits
    except ModuleNotFoundError as error:
        raise MissingDependencyError(
            "the digits dataset needs the package scikit-learn, which is not installed",
            "Install it with: pip install 'rcil[classify]'",
        ) from error
    bunch = load_digits()
    grey = np.round(bunch.images * (255 / 16)).astype(np.uint8)
    images = np.stack([_resized(np.repeat(one[..., None], 3, axis=2), size) for one in grey])
    everything = LabelledImages(images, bunch.target.astype(np.int64))
    train, test = stratified(everything.labels, TEST_SHARE, SPLIT_SEED)
    return ClassificationData(tuple(str(name) for name in bunch.target_names), everything[train], everything[test])


def _folder(root: Path, size: int) -> ClassificationData:
    with readable(root):
        names, also = (_class_names(root / split) for split in ("train", "val"))
        if names != also:
            differing = ", ".join(sorted(set(names) ^ set(also)))
            raise DataError(f"train and val of {root} differ in the classes {differing}", LAYOUT_HINT)
        return ClassificationData(names, *(_split(root / split, names, size) for split in ("train", "val")))


def _class_names(split: Path) -> tuple[str, ...]:
    existing_folder(split, LAYOUT_HINT)
    folders = sorted(path for path in split.iterdir() if path.is_dir())
    unreadable = next((path for path in folders if not is_text(path)), None)
    if unreadable is not None:
        raise DataError(f"the name of {printable(unreadable)} is not UTF-8", "Rename the class's folder.")
    if not folders:
        raise DataError(f"{split} has no class folders", LAYOUT_HINT)
    return tuple(path.name for path in folders)


def _split(folder: Path, names: tuple[str, ...], size: int) -> LabelledImages:
    files: list[Path] = []
    labels: list[int] = []
    for label, name in enumerate(names):
        paths = sorted(path for path in (folder / name).iterdir() if path.suffix.lower() in SUFFIXES)
        if not paths:
            raise DataError(f"{folder / name} has no images", f"Supported formats: {', '.join(SUFFIXES)}.")
        files += paths
        labels += [label] * len(paths)
    return LabelledImages(ImageFiles(tuple(files), size), np.array(labels, np.int64))


def _resized(image: Image, size: int) -> Image:
    """Resize [H, W, 3] to [size, size, 3]; shrinking averages pixels."""
    smaller = size < min(image.shape[:2])
    resized = cv2.resize(image, (size, size), interpolation=cv2.INTER_AREA if smaller else cv2.INTER_LINEAR)
    return np.asarray(resized, np.uint8)


def class_steps(names: Sequence[str], protocol: ProtocolSection, seed: int) -> tuple[tuple[str, ...], ...]:
    """Divide the class names into steps, in an order drawn from `seed`.

    Args:
        names: All classes.
        protocol: The number of classes in step 0 and the number of later steps.
        seed: Seed of the task.
    """
    first = len(names) // 2 if protocol.first is None else protocol.first
    rest, later = len(names) - first, protocol.later_steps
    if first < 2 or rest < 0 or (later and (rest < later or rest % later)) or (not later and rest):
        raise ConfigError(
            f"{len(names)} classes cannot be divided into {first} first classes and {later} equal later steps",
            "Choose protocol.first (at least 2) and protocol.later_steps so that the rest divides evenly.",
        )
    order = [names[index] for index in np.random.default_rng(seed).permutation(len(names))]
    size = rest // later if later else 1
    return (tuple(order[:first]), *(tuple(order[at : at + size]) for at in range(first, len(order), size)))
