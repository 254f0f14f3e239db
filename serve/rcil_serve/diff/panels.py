"""Draws the old model's mask, the new model's mask and the changes, at any size."""

from __future__ import annotations

from collections.abc import Sequence

import cv2
import numpy as np

from rcil.core.drawing import drawable, legend
from rcil.core.images import Image
from rcil_serve.diff.transitions import KINDS, SAME, Codes, CommonClasses, kind_classes
from rcil_serve.runtime.backends import Mask
from rcil_serve.runtime.painter import BACKGROUND, Painter

CAPTION = 26
"""Height of a line of text in pixels."""
MAX_LINES = 3
"""Maximum number of legend lines below a video; the page lists all classes."""
GAP = 4
"""Gap between panels in pixels."""
CHANGE_ALPHA = 0.75
DIMMED = 0.55
"""Brightness of the image behind the changes."""
INK = (32, 32, 32)


class Panels:
    """Paints both models' masks and their transitions.

    Args:
        classes: Classes of both models.
        codes: Encoder of their transitions.
        alpha: Opacity of the class colours, 0 to 1.
    """

    def __init__(self, classes: CommonClasses, codes: Codes, alpha: float = 0.5) -> None:
        self._codes = codes
        self._classes = Painter(classes.table, alpha)
        self._changes = Painter(kind_classes(), CHANGE_ALPHA)
        self._outlines = Painter(kind_classes(), 1.0)

    def old(self, image: Image, codes: Mask) -> Image:
        """Paint the old model's classes over an RGB image [H, W, 3]."""
        return self._classes.paint(image, self._codes.old(codes))

    def new(self, image: Image, codes: Mask) -> Image:
        """Paint the new model's classes over an RGB image [H, W, 3]."""
        return self._classes.paint(image, self._codes.new(codes))

    def changes(self, image: Image, codes: Mask) -> Image:
        """Paint every change in the colour of its kind over the darkened grey image."""
        grey = cv2.cvtColor(image, cv2.COLOR_RGB2GRAY)
        dim = cv2.convertScaleAbs(grey, alpha=DIMMED)
        return self._changes.paint(np.asarray(cv2.merge((dim, dim, dim)), np.uint8), self._codes.kinds(codes))

    def outlined(self, image: Image, codes: Mask) -> Image:
        """Outline every change in the colour of its kind."""
        kinds = self._codes.kinds(codes)
        thickness = 1 + 2 * max(1, round(image.shape[1] / 320))
        inner = cv2.erode(kinds, np.ones((thickness, thickness), np.uint8))
        outer = cv2.dilate(kinds, np.ones((thickness, thickness), np.uint8))
        return self._outlines.paint(image, np.where(inner != outer, kinds, np.uint8(SAME)))

    def three(self, image: Image, codes: Mask, size: tuple[int, int]) -> Image:
        """Draw old, new and changes side by side, each with this height and width and `GAP` between them."""
        small, fewer = scaled(image, codes, size)
        return beside([self.old(small, fewer), self.new(small, fewer), self.changes(small, fewer)])


def beside(images: Sequence[Image]) -> Image:
    """Place images of equal height side by side on white, with `GAP` between them."""
    gap = np.full((images[0].shape[0], GAP, 3), 255, np.uint8)
    return np.hstack([part for image in images for part in (gap, image)][1:])


def scaled(image: Image, codes: Mask, size: tuple[int, int]) -> tuple[Image, Mask]:
    """Resize both: the image is averaged or interpolated, codes use the nearest neighbour."""
    if image.shape[:2] == size:
        return image, codes
    how = cv2.INTER_AREA if size[0] < image.shape[0] else cv2.INTER_CUBIC
    picture = np.asarray(cv2.resize(image, size[::-1], interpolation=how), np.uint8)
    return picture, np.asarray(cv2.resize(codes, size[::-1], interpolation=cv2.INTER_NEAREST_EXACT), codes.dtype)


def jpeg(image: Image, quality: int = 85) -> bytes:
    """Encode an RGB image [H, W, 3] as JPEG."""
    data = cv2.imencode(".jpg", cv2.cvtColor(image, cv2.COLOR_RGB2BGR), [cv2.IMWRITE_JPEG_QUALITY, quality])[1]
    return data.tobytes()


def caption(text: str, width: int) -> Image:
    """Draw a line of text on white, [CAPTION, width, 3] RGB; text that does not fit is cut off."""
    canvas = np.full((CAPTION, width, 3), 255, np.uint8)
    cv2.putText(canvas, drawable(text), (8, CAPTION - 8), cv2.FONT_HERSHEY_SIMPLEX, 0.5, INK, 1, cv2.LINE_AA)
    return canvas


def key(classes: CommonClasses, width: int) -> Image:
    """Draw the legend of the classes, up to `MAX_LINES`, and of the kinds of change, [H, width, 3] RGB."""
    named = [(c.name, c.colour) for row, c in enumerate(classes.table) if row != BACKGROUND]
    kinds = [(kind.name, kind.colour) for kind in KINDS[SAME + 1 :]]
    return np.vstack([legend(named, width, CAPTION)[: MAX_LINES * CAPTION], legend(kinds, width, CAPTION)])
