"""What the writers of all formats share: the images of a site folder, their masks and the names of labels."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from rcil.core.images import read_rgb
from rcil.core.masks import Mask, read_mask
from rcil.core.palette import Colour, voc_colour
from rcil.core.reading import DataError
from rcil.data.converters.annotations import is_background, is_ignored
from rcil.data.site import LAYOUT, pair_files, read_classes
from rcil.data.types import IGNORE, ClassSpec, Sample

NO_SUBSET = "default"
"""The subset of images without a split, as CVAT calls it."""
BACKGROUND_LABEL, IGNORE_LABEL = "background", "ignore"


@dataclass(frozen=True)
class Label:
    """A class as the labelling tool shows it."""

    value: int
    """Class id, or 255 for ignored pixels."""
    name: str
    colour: Colour


@dataclass(frozen=True)
class Labelled:
    """An image to export."""

    split: str
    """Name of the split; empty in a site folder without splits."""
    sample: Sample

    @property
    def path(self) -> str:
        """Path of the image below the folder of all images: `train/cam/a.jpg`."""
        return "/".join(filter(None, (self.split, f"{self.sample.name}{self.sample.image.suffix.lower()}")))

    @property
    def subset(self) -> str:
        """The split, or `default`."""
        return self.split or NO_SUBSET

    def mask(self, labels: Sequence[Label]) -> Mask:
        """The class ids; raises if they do not fit the image or the classes."""
        mask = read_mask(self.sample.mask)
        height, width, _ = read_rgb(self.sample.image).shape
        known = {0, *(label.value for label in labels)}
        if mask.shape != (height, width):
            size = f"{mask.shape[1]} x {mask.shape[0]}"
            raise DataError(
                f"{self.sample.mask} is {size} pixels, its image {width} x {height}", "Run: rcil data check SITE"
            )
        unknown = sorted(set(mask.ravel().tolist()) - known)
        if unknown:
            raise DataError(f"{self.sample.mask} holds the unknown id {unknown[0]}", "Run: rcil data check SITE")
        return mask


@dataclass(frozen=True)
class Export:
    """What a writer writes."""

    labels: tuple[Label, ...]
    """The classes without background, then `ignore`."""
    images: tuple[Labelled, ...]
    polygons: bool = False
    """Write outlines instead of masks."""
    predicted: bool = False
    """The masks are predictions of a model, which somebody has to review."""

    @property
    def by_value(self) -> dict[int, Label]:
        """Labels by class id, with one for background, which polygons need inside holes."""
        background = Label(0, BACKGROUND_LABEL, (0, 0, 0))
        return {label.value: label for label in (background, *self.labels)}

    @property
    def drawn_labels(self) -> tuple[Label, ...]:
        """The labels that annotations may use, with background if there are polygons."""
        return (self.by_value[0], *self.labels) if self.polygons else self.labels

    def masks(self) -> Iterator[tuple[Labelled, Mask]]:
        """Every image with its class ids [height, width]."""
        for image in self.images:
            yield image, image.mask(self.labels)


def find_labelled(site: Path) -> list[Labelled]:
    """The images of a site folder that have a mask; raises for the first one without."""
    pairing = pair_files(site)
    if pairing.problems:
        path, message = pairing.problems[0]
        raise DataError(f"{path}: {message}", f"Run: rcil data check {site}")
    found = [Labelled(split, sample) for split, samples in pairing.splits.items() for sample in samples]
    if not found:
        raise DataError(f"{site} holds no images", LAYOUT)
    return found


def labels_of(site: Path) -> tuple[Label, ...]:
    """The classes without background, and `ignore` for 255; raises for names that would be read back as another id."""
    classes = read_classes(site)
    for spec in classes[1:]:
        if is_background(spec.name) or is_ignored(spec.name):
            meaning = BACKGROUND_LABEL if is_background(spec.name) else "ignored pixels"
            raise DataError(f"{site}: a labelling tool's class '{spec.name}' means {meaning}", "Rename the class.")
    drawn = [Label(value, spec.name, spec.colour) for value, spec in enumerate(classes) if value]
    return (*drawn, Label(IGNORE, IGNORE_LABEL, _free_colour(classes)))


def _free_colour(classes: Sequence[ClassSpec]) -> Colour:
    """The default colour of 255, or the next one that no class uses."""
    taken = {spec.colour for spec in classes}
    return next(colour for value in range(IGNORE, 2**12) if (colour := voc_colour(value)) not in taken)


def hex_colour(colour: Colour) -> str:
    """`#rrggbb`."""
    return "#" + bytes(colour).hex()
