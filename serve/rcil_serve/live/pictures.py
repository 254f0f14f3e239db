"""Segmented frames as JPEG pictures, with the overlay and the zones."""

from __future__ import annotations

from collections.abc import Sequence

import cv2
import numpy as np

from rcil.core.images import Image
from rcil.model.metadata import ClassInfo
from rcil_serve.runtime.painter import Painter
from rcil_serve.runtime.predictor import Segmentation
from rcil_serve.runtime.zones import Zone

MAX_SIDE = 1280
"""Longest side of a picture in pixels; larger frames are scaled down before they are painted."""
QUALITY = 85


class Pictures:
    """Makes JPEG pictures of frames.

    Args:
        zones: Zones whose outlines are drawn.
        alpha: Opacity of the class colours.
        only: Names of the classes to paint; all if empty.
    """

    def __init__(self, zones: Sequence[Zone] = (), alpha: float = 0.5, only: Sequence[str] = ()) -> None:
        self._zones, self._alpha, self._only = tuple(zones), alpha, tuple(only)
        self._classes: tuple[ClassInfo, ...] = ()
        self._painter: Painter | None = None

    def jpeg(self, image: Image, found: Segmentation, classes: tuple[ClassInfo, ...]) -> bytes:
        """Paint a frame.

        Args:
            image: RGB [H, W, 3].
            found: Its segmentation.
            classes: Classes of the model that made it, in the order of rows.
        """
        if self._painter is None or classes != self._classes:
            self._classes, self._painter = classes, Painter(classes, self._alpha, self._only)
        mask, grid = found.mask, found.grid_size
        factor = MAX_SIDE / max(image.shape[:2])
        if factor < 1:
            sides = max(1, round(image.shape[1] * factor)), max(1, round(image.shape[0] * factor))
            image = np.asarray(cv2.resize(image, sides, interpolation=cv2.INTER_AREA), np.uint8)
            mask = cv2.resize(mask, sides, interpolation=cv2.INTER_NEAREST)
        drawn = self._painter.paint(image, mask, grid)
        for zone in self._zones:
            zone.draw(drawn)
        return encode_jpeg(drawn)


def encode_jpeg(image: Image) -> bytes:
    """Encode an RGB image [H, W, 3]."""
    bgr = cv2.cvtColor(image, cv2.COLOR_RGB2BGR)
    return cv2.imencode(".jpg", bgr, [cv2.IMWRITE_JPEG_QUALITY, QUALITY])[1].tobytes()
