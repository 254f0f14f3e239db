"""A small k-means, to start the proxies of new classes where their images are."""

from __future__ import annotations

import torch
from torch import Tensor

ROUNDS = 30


@torch.no_grad()
def kmeans(points: Tensor, count: int, generator: torch.Generator) -> Tensor:
    """Centres [count, C] of points [N, C]; the same generator state gives the same centres.

    Starts by k-means++: each centre is drawn with a chance that grows with its squared distance to those before. With
    fewer points than centres, centres repeat. A centre that loses all its points stays where it is.
    """
    first = int(torch.randint(len(points), (1,), generator=generator))
    centres = points[first][None]
    while len(centres) < count:
        far = torch.cdist(points, centres).amin(dim=1).square()
        chances = far if far.sum() > 0 else torch.ones_like(far)
        centres = torch.cat((centres, points[torch.multinomial(chances, 1, generator=generator)]))
    for _ in range(ROUNDS):
        nearest = torch.cdist(points, centres).argmin(dim=1)
        moved = torch.stack(
            [points[nearest == at].mean(dim=0) if (nearest == at).any() else centres[at] for at in range(count)]
        )
        if torch.equal(moved, centres):
            break
        centres = moved
    return centres
