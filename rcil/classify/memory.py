"""The replay memory: choose images by herding, and read the list of a finished step."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import torch
import torch.nn.functional as F
from pydantic import Field, TypeAdapter
from torch import Tensor

from rcil.core.errors import TrainingError

Memory = dict[str, list[int]]
"""Indices of training images by class."""
_STORED: TypeAdapter[Memory] = TypeAdapter(dict[str, list[Annotated[int, Field(ge=0)]]])


def read_memory(path: Path, images: int) -> Memory:
    """Read the memory of the previous step; raises if an index exceeds the number of training images."""
    try:
        memory = _STORED.validate_json(path.read_bytes())
        if any(index >= images for indices in memory.values() for index in indices):
            raise ValueError(f"there are {images} images")
    except (OSError, ValueError) as error:
        raise TrainingError(
            f"{path} is not a valid list of images", "Delete it and the checkpoint of its step to train the step again."
        ) from error
    return memory


@torch.no_grad()
def herd(embeddings: Tensor, count: int) -> list[int]:
    """Indices of `count` samples, in the order of choice, whose running mean stays closest to the overall mean.

    Returns all samples if there are fewer. Embeddings [N, C] are normalised first.
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
