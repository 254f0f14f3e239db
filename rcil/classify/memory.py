"""Which images of a class are kept: herding."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor


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
