"""Labelling images with an exported model: images of any size in, masks of that size out."""

from __future__ import annotations

import cv2
import numpy as np
from numpy.typing import NDArray

from rcil.core.errors import ConfigError
from rcil.core.images import Image
from rcil.inference import Rows
from rcil.model.metadata import ClassInfo
from rcil_export.checks.artefact import Artefact
from rcil_export.images import CheckImage, fit


class ArtefactLabeller:
    """An open artefact as `rcil.labelling.prelabel.Labeller`.

    Args:
        artefact: With the output `confidence` or `logits`.
    """

    def __init__(self, artefact: Artefact) -> None:
        self.artefact = artefact

    @property
    def classes(self) -> tuple[ClassInfo, ...]:
        """The classes in row order."""
        return self.artefact.metadata.classes

    def segment_with_confidence(self, image: Image, *, scale: float) -> tuple[Rows, NDArray[np.float32]]:
        """See `Labeller`. Images are resized to what the graph takes, and the results back to the size of the image."""
        height, width = image.shape[:2]
        found = self.artefact.predict(fit(CheckImage("image", image), self.artefact.shape, scale).pixels)
        confidence = found.confidence
        if confidence is None and found.logits is not None:
            shares = np.exp(found.logits - found.logits.max(axis=0))
            confidence = (shares.max(axis=0) / shares.sum(axis=0)).astype(np.float32)
        if confidence is None:
            raise ConfigError(
                f"{self.artefact.name} gives no confidence", "Export it again with --outputs mask,confidence."
            )
        rows = found.mask.astype(np.uint8)
        if rows.shape != (height, width):
            rows = np.asarray(cv2.resize(rows, (width, height), interpolation=cv2.INTER_NEAREST_EXACT), np.uint8)
            confidence = np.asarray(cv2.resize(confidence, (width, height)), np.float32)
        return rows, confidence
