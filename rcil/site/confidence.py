"""The confidence of a model for every pixel."""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray

from rcil.core.images import Image
from rcil.evaluation.evaluate import logits_of
from rcil.model.metadata import Metadata
from rcil.nn import Segmenter


def segment_with_confidence(
    model: Segmenter, metadata: Metadata, image: Image, *, scale: float = 1.0
) -> tuple[NDArray[np.uint8], NDArray[np.float32]]:
    """Class rows [H, W] of one RGB image [H, W, 3] and the probability [H, W] that the model gives them."""
    probability, rows = logits_of(model, metadata, image, scale=scale).softmax(1).max(1)
    return rows[0].to(torch.uint8).cpu().numpy(), probability[0].float().cpu().numpy()
