"""Cosine heads. The linear one, a group of rows for each step, is `rcil.nn.classifier.IncrementalClassifier`."""

from __future__ import annotations

import copy
import math
from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from rcil.nn.classifier import check_names

START_SCALE = 10.0
"""Initial scale. Cosines differ by at most 2, so a short training with a scale of 1 would mostly learn the scale."""


class CosineClassifier(nn.Module):
    """Local similarity classifier: a class has several proxies and is scored by the cosines with them.

    Args:
        inputs: Channels of the embedding.
        steps: Class names of each step.
        proxies: Number of proxies per class.
    """

    def __init__(self, inputs: int, steps: Sequence[Sequence[str]], proxies: int) -> None:
        super().__init__()
        check_names([name for names in steps for name in names])
        self.steps = tuple(tuple(names) for names in steps)
        self.proxies = proxies
        self.groups = nn.ModuleList(nn.Conv2d(inputs, len(names) * proxies, 1, bias=False) for names in self.steps)
        self.log_scale = nn.Parameter(torch.tensor(math.log(START_SCALE)))

    @property
    def names(self) -> tuple[str, ...]:
        """Class names in row order."""
        return tuple(name for names in self.steps for name in names)

    @property
    def scale(self) -> Tensor:
        """The learned scale.

        Its logarithm is learned: the margin of NCA lowers the scale until classes separate, and it must stay positive.
        """
        return self.log_scale.exp()

    def forward(self, x: Tensor) -> Tensor:
        """Embeddings [N, C, 1, 1] -> scaled similarities [N, classes, 1, 1]."""
        unit = F.normalize(x, dim=1)
        cosines = [group(unit) / norms_of(group).view(1, -1, 1, 1) for group in self._convs()]
        return self.scale * local_similarity(torch.cat(cosines, dim=1), self.proxies)

    @torch.no_grad()
    def extended(self, new: Sequence[str], starts: Tensor) -> CosineClassifier:
        """A new classifier with the proxies of one more step.

        Args:
            new: Names of the added classes.
            starts: Their proxies [new classes, proxies, C], of any length; they get the mean length of the others.
        """
        check_names([*self.names, *new])
        grown = copy.deepcopy(self)
        grown.steps = (*self.steps, tuple(new))
        first = grown._convs()[0]
        group = nn.Conv2d(first.in_channels, len(new) * self.proxies, 1, bias=False).to(first.weight)
        length = torch.cat([norms_of(conv) for conv in self._convs()]).mean()
        group.weight.copy_((length * F.normalize(starts.flatten(0, 1), dim=1))[..., None, None])
        grown.groups.append(group)
        return grown.train(self.training)

    @torch.no_grad()
    def fold(self) -> FoldedCosine:
        """The deployed form: all proxies in one conv, each of length 1; computed in float64."""
        rows = torch.cat([conv.weight for conv in self._convs()])
        unit = F.normalize(rows.double(), dim=1).to(rows)
        return FoldedCosine(unit, self.names, self.proxies, self.log_scale.double().exp().to(rows))

    def _convs(self) -> list[nn.Conv2d]:
        return [group for group in self.groups if isinstance(group, nn.Conv2d)]


class FoldedCosine(nn.Module):
    """A folded cosine classifier: its conv computes cosines, and its scale is a constant.

    Args:
        rows: Proxies of length 1 [classes * proxies, C, 1, 1], those of a class side by side.
        names: Class names in row order.
        proxies: Number of proxies per class.
        scale: Scale of the similarities.
    """

    scale: Tensor

    def __init__(self, rows: Tensor, names: Sequence[str], proxies: int, scale: Tensor) -> None:
        super().__init__()
        self.names = tuple(names)
        self.proxies = proxies
        self.conv = nn.Conv2d(rows.shape[1], rows.shape[0], 1, bias=False)
        self.conv.weight = nn.Parameter(rows.detach().clone())
        self.register_buffer("scale", scale.detach().clone())

    def forward(self, x: Tensor) -> Tensor:
        """Embeddings [N, C, 1, 1] -> scaled similarities [N, classes, 1, 1]."""
        scores: Tensor = self.scale * local_similarity(self.conv(F.normalize(x, dim=1)), self.proxies)
        return scores


def random_cosine(inputs: int, names: Sequence[str], proxies: int) -> FoldedCosine:
    """A folded cosine classifier with random proxies of length 1."""
    rows = F.normalize(torch.randn(len(names) * proxies, inputs, 1, 1), dim=1)
    return FoldedCosine(rows, names, proxies, torch.tensor(START_SCALE))


def norms_of(conv: nn.Conv2d) -> Tensor:
    """Lengths [rows] of the rows of a 1x1 conv."""
    lengths: Tensor = torch.linalg.vector_norm(conv.weight.flatten(1), dim=1)
    return lengths


def local_similarity(cosines: Tensor, proxies: int) -> Tensor:
    """Cosines with all proxies [N, classes * proxies, 1, 1] -> one similarity per class [N, classes, 1, 1].

    The proxies of a class are weighted by the softmax of their own cosines.
    """
    grouped = cosines.reshape(cosines.shape[0], -1, proxies, 1)
    return (grouped.softmax(dim=2) * grouped).sum(dim=2, keepdim=True)


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
