"""How sure a model is of every pixel."""

from __future__ import annotations

import cv2
import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor

from rcil.checkpoint.metadata import Metadata
from rcil.evaluate import as_input
from rcil.images import Image
from rcil.nn import Segmenter


def segment_with_confidence(
    model: Segmenter, metadata: Metadata, image: Image, *, scale: float = 1.0
) -> tuple[NDArray[np.uint8], NDArray[np.float32]]:
    """Class rows [H, W] of one RGB image [H, W, 3] and the probability [H, W] that the model gives them."""
    probability, rows = logits_of(model, metadata, image, scale=scale).softmax(1).max(1)
    return rows[0].to(torch.uint8).cpu().numpy(), probability[0].float().cpu().numpy()


@torch.no_grad()
def logits_of(model: Segmenter, metadata: Metadata, image: Image, *, scale: float = 1.0) -> Tensor:
    """Logits [1, classes, H, W] of one RGB image [H, W, 3], which the network sees at `scale` of its size."""
    height, width = image.shape[:2]
    if scale != 1:
        smaller = max(1, round(width * scale)), max(1, round(height * scale))
        image = np.asarray(cv2.resize(image, smaller, interpolation=cv2.INTER_AREA), np.uint8)
    pixels = as_input(metadata, image)[None]
    logits: Tensor = model(pixels.to(next(model.parameters(), pixels).device))
    if scale != 1:
        logits = F.interpolate(logits, size=(height, width), mode="bilinear", align_corners=False)
    return logits
