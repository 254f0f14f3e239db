"""The result of segmenting one image, shared by `rcil` and `rcil_serve`. No torch here."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rcil.core.drawing import blend, legend
from rcil.core.images import Image
from rcil.core.palette import Colour
from rcil.core.reading import DataError


@dataclass(frozen=True, eq=False)
class Prediction:
    """What a model sees in one image.

    Example:
        >>> result = rcil.load("model.safetensors").predict(image)
        >>> result.mask.shape == image.shape[:2]
        True
        >>> 0 < result.confidence <= 1
        True
        >>> round(sum(result.shares.values()), 6)
        1.0
        >>> result.overlay(alpha=0.6).shape == image.shape
        True
    """

    image: Image = field(repr=False)
    """The RGB image [H, W, 3]."""
    mask: NDArray[Any] = field(repr=False)
    """Class rows [H, W]: the value `row` means the class `model.classes[row]`."""
    confidence: float | None
    """Mean probability of the chosen classes; None if an exported model does not have this output."""
    names: tuple[str, ...]
    """Class names by row."""
    colours: tuple[Colour, ...] = field(repr=False)
    """Class colours by row, RGB."""
    grid_size: tuple[int, int] | None = field(default=None, repr=False)
    """Height and width at which the network segmented the image, if the mask was enlarged from them."""

    @property
    def shares(self) -> dict[str, float]:
        """Share of the pixels by class name, from 0 to 1; classes that do not occur are left out."""
        counts = np.bincount(self.mask.ravel(), minlength=len(self.names))
        return {name: float(count) / self.mask.size for name, count in zip(self.names, counts, strict=True) if count}

    def overlay(self, alpha: float = 0.5, *, with_legend: bool = False) -> Image:
        """The image with the mask blended over it, RGB [H, W, 3]; the background is not painted.

        Args:
            alpha: Weight of the class colours, from 0 to 1.
            with_legend: Add a legend of the classes that occur below the image, which makes it higher.
        """
        rows = max(256, len(self.colours))
        colours, untouched = np.zeros((rows, 3), np.uint8), np.zeros(rows, np.uint8)
        colours[: len(self.colours)], untouched[0] = self.colours, 255
        picture = blend(self.image, self.mask, colours, untouched, alpha, self.grid_size)
        if not with_legend:
            return picture
        seen = [(name, self.colours[row]) for row, name in enumerate(self.names) if row and name in self.shares]
        return np.vstack([picture, legend(seen, picture.shape[1])]) if seen else picture


def check_image(image: object) -> Image:
    """The image, if it is RGB uint8 [H, W, 3] with at least one pixel."""
    if not isinstance(image, np.ndarray):
        raise DataError(f"expected a numpy array, not {type(image).__name__}", "Read the image with OpenCV or PIL.")
    if image.dtype != np.uint8 or image.ndim != 3 or image.shape[2] != 3 or image.size == 0:
        found = f"{image.dtype} {list(image.shape)}"
        raise DataError(f"expected an RGB image, uint8 [height, width, 3], not {found}", "Convert the array.")
    return image
