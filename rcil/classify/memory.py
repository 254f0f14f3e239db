"""Which images of a class are kept: herding, and what a step noted."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import torch
import torch.nn.functional as F
from pydantic import Field, TypeAdapter
from torch import Tensor

from rcil.core.errors import TrainingError

Memory = dict[str, list[int]]
"""Places among the training images by class."""
_STORED: TypeAdapter[Memory] = TypeAdapter(dict[str, list[Annotated[int, Field(ge=0)]]])


def read_memory(path: Path, images: int) -> Memory:
    """What the step before noted; refused where a place is not one of that many training images."""
    try:
        memory = _STORED.validate_json(path.read_bytes())
        if any(place >= images for places in memory.values() for place in places):
            raise ValueError(f"there are {images} images")
    except (OSError, ValueError) as error:
        raise TrainingError(
            f"{path} does not say which images are kept", "Delete it and its step's checkpoint to train the step anew."
        ) from error
    return memory


@torch.no_grad()
def herd(embeddings: Tensor, count: int) -> list[int]:
    """Places of `count` samples, in the order of choice, whose running mean stays closest to the mean of all.

    All of them where there are fewer. Embeddings [N, C] are brought to length 1 first.
    """
    points = F.normalize(embeddings, dim=1)
    target = points.mean(dim=0)
    chosen: list[int] = []
    total = torch.zeros_like(target)
    for size in range(1, min(count, len(points)) + 1):
        distances = torch.linalg.vector_norm(target - (total + points) / size, dim=1)
        distances[chosen] = float("inf")
        chosen.append(int(distances.argmin()))
        total = total + points[chosen[-1]]
    return chosen
