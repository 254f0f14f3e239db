"""Which images calibrate int8 and which ones judge it: never the same ones, where there are enough."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from rcil.model.metadata import Metadata
from rcil_export.graph.interface import Interface
from rcil_export.images import CheckImages, image_files, images_for, photographs_of, spread
from rcil_export.precision.feeds import Feeds, feeds_from, find_feeds

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
class ImageSplit:
    """Two sets of images."""

    feeds: Feeds
    """To calibrate on."""
    judged: CheckImages
    """To compare masks on, with the truth where there are masks."""
    apart: bool
    """Whether no image is in both."""

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

    Judged are the images of `images`, or those of `calibrate` that `images_for` chooses: the `val` part of a site
    folder. All others of `calibrate` give the ranges. If too few are left, every third image judges and the others
    give the ranges.

    Args:
        calibrate: Images of the site; None: generated ones.
        images: Images that the user wants to compare on.
        metadata: Says how the model wants its images.
        interface: Says in which size and type.
    """
    shape = interface.shape
    if calibrate is None:
        judged = images_for(images, shape, most=MAX_JUDGED)
        return ImageSplit(find_feeds(None, metadata, interface), judged, apart=images is not None)
    root = photographs_of(calibrate)
    candidates = images_for(images or calibrate, shape)
    everything = image_files(root)
    judging = {path.resolve() for path in candidates.files}
    rest = [path for path in everything if path.resolve() not in judging]
    apart = len(rest) >= min(MIN_CALIBRATION, len(everything))
    if not apart and len(everything) >= MIN_TO_SPLIT and len(candidates) >= MIN_TO_SPLIT:
        places = range(JUDGED_EVERY - 1, len(candidates), JUDGED_EVERY)
        candidates = candidates.some(places, f"{len(places)} images of {images or calibrate}")
        judging = {path.resolve() for path in candidates.files}
        rest, apart = [path for path in everything if path.resolve() not in judging], True
    chosen = spread(rest if apart else everything, MAX_CALIBRATION)
    feeds = feeds_from(root, [path.relative_to(root).as_posix() for path in chosen], metadata, interface)
    return ImageSplit(feeds, _at_most(candidates, MAX_JUDGED), apart)


def _at_most(images: CheckImages, most: int) -> CheckImages:
    if len(images) <= most:
        return images
    places = spread(list(range(len(images))), most)
    return images.some(places, images.description.replace(str(len(images)), str(most), 1))
