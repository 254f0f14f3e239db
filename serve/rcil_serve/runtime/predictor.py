"""Segments images of any size with a backend; the mask has the size of the image."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby, islice
from typing import NamedTuple

import numpy as np

from rcil.core.errors import ConfigError
from rcil.core.images import Image
from rcil.model.metadata import ClassInfo, scale_notice
from rcil_export.graph.preprocessing import image_input
from rcil_serve.runtime.backends import Backend, Mask, Stoppable
from rcil_serve.runtime.geometry import Letterbox, letterbox_for, tiles
from rcil_serve.runtime.planes import Picture, as_rgb, size_of


class Segmentation(NamedTuple):
    """The segmentation of one image."""

    mask: Mask
    """Class rows [H, W]."""
    confidence: float | None
    """Mean probability of the predicted classes; None if the model does not output it."""
    grid_size: tuple[int, int] | None = None
    """Height and width at which the network segmented the image, if the mask was enlarged from them."""


@dataclass(frozen=True)
class Layout:
    """How images are fitted to a model's input."""

    size: tuple[int, int] | None = None
    """Height and width of the model's input; None selects its fixed size, or that of the image times the scale."""
    tile: int | None = None
    """Side of the square tiles that large images are cut into; None disables tiling."""
    overlap: int = 64
    """Overlap of neighbouring tiles in pixels."""
    batch: int = 1
    """Batch size, in images or tiles."""
    scale: float | None = None
    """Factor by which images are resized for models that accept several sizes; None: that of the model's training."""


class Predictor:
    """Segments images of any size.

    Args:
        backend: The model; the caller closes it.
        layout: How images are fitted to its input.
    """

    def __init__(self, backend: Backend, layout: Layout | None = None) -> None:
        self.backend = backend
        self.layout = layout or Layout()
        extent = backend.interface.shape.batch
        if not 1 <= self.layout.batch <= extent.high:
            raise ConfigError(
                f"{backend.name} accepts batches of {extent.low} to {extent.high} images, not {self.layout.batch}",
                f"Choose another --batch, or export it with --batch 1:{max(1, self.layout.batch)}:"
                f"{max(1, self.layout.batch)}.",
            )
        self.scale = _scale_of(backend, self.layout)
        self._min_batch = extent.low
        self._fill = _mean_colour(backend)

    @property
    def classes(self) -> tuple[ClassInfo, ...]:
        """The model's classes in the order of mask rows."""
        return self.backend.metadata.classes

    @property
    def notices(self) -> list[str]:
        """A line for the user if the scale of the model's training takes part."""
        return [] if self.scale == 1 or self.layout.scale is not None else scale_notice([self.backend.metadata])

    def segment(self, image: Picture) -> Segmentation:
        """Segment one RGB image [H, W, 3], or planes."""
        return self.segment_all([image])[0]

    def segment_all(self, images: Sequence[Picture]) -> list[Segmentation]:
        """Segment images of any size; consecutive images of one size share batches."""
        if self.layout.tile is not None:
            return [self._tiled(as_rgb(image)) for image in images]
        return self._whole(images)

    def stop(self) -> None:
        """Stop waiting for a model on a server that is away; see `Stoppable`."""
        if isinstance(self.backend, Stoppable):
            self.backend.stop()

    def _tiled(self, image: Image) -> Segmentation:
        assert self.layout.tile is not None
        parts = tiles((image.shape[0], image.shape[1]), self.layout.tile, self.layout.overlap)
        found = self._whole([image[part.rows, part.columns] for part in parts])
        mask = np.empty(image.shape[:2], found[0].mask.dtype)
        for part, one in zip(parts, found, strict=True):
            mask[part.keep_rows, part.keep_columns] = part.kept(one.mask)
        sure = [one.confidence for one in found if one.confidence is not None]
        return Segmentation(mask, float(np.mean(sure)) if sure else None)

    def _whole(self, images: Sequence[Picture]) -> list[Segmentation]:
        shape = self.backend.interface.shape
        boxes = [letterbox_for(size_of(image), shape, self.layout.size, self.scale) for image in images]
        found: list[Segmentation] = []
        size = max(self.layout.batch, self._min_batch)
        for _, group in groupby(zip(images, boxes, strict=True), key=lambda pair: pair[1].canvas):
            while batch := list(islice(group, size)):
                found += self._batch(batch)
        return found

    def _batch(self, batch: list[tuple[Picture, Letterbox]]) -> list[Segmentation]:
        metadata, interface = self.backend.metadata, self.backend.interface
        inputs = [image_input(metadata, interface, box.place(image, self._fill)) for image, box in batch]
        inputs += inputs[-1:] * (self._min_batch - len(inputs))
        outputs = self.backend.run(inputs[0][None] if len(inputs) == 1 else np.stack(inputs))
        return [
            Segmentation(
                box.undo(outputs.mask[index]),
                None if outputs.confidence is None else float(box.cut(outputs.confidence[index]).mean()),
                box.inner if box.inner[0] < box.image[0] else None,
            )
            for index, (_, box) in enumerate(batch)
        ]


def _scale_of(backend: Backend, layout: Layout) -> float:
    """The factor by which images are resized; 1 where the size of the input decides, and a scale cannot."""
    if layout.size is None and not backend.interface.shape.one_size:
        return backend.metadata.training_scale if layout.scale is None else layout.scale
    if layout.scale is not None:
        fixed = "--size is given" if layout.size is not None else f"{backend.name} has one input size"
        raise ConfigError(
            f"--scale has no effect, because {fixed}", "Leave out --scale, or use a model exported with --dynamic."
        )
    return 1.0


def _mean_colour(backend: Backend) -> tuple[int, int, int]:
    """Fill colour of letterboxes in RGB: the mean colour, which the network sees as zero."""
    red, green, blue = (min(255, max(0, round(255 * value))) for value in backend.metadata.mean)
    return (red, green, blue) if backend.metadata.colour_order == "RGB" else (blue, green, red)
