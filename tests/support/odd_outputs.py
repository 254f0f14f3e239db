"""Networks of "another library" whose logits are chosen, scaled or mixed in unusual ways."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from odd_networks import Plain, Small
from torch import Tensor, nn


class Scaled(Small):
    """Logits with a temperature that is a buffer."""

    def __init__(self, classes: int = 3) -> None:
        super().__init__(classes)
        self.register_buffer("temperature", torch.tensor(4.0))

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x) / self.temperature


class LearnedScale(Small):
    """A temperature that is trained."""

    def __init__(self, classes: int = 3) -> None:
        super().__init__(classes)
        self.temperature = nn.Parameter(torch.tensor(4.0))

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x) / self.temperature


class Mixed(Small):
    """Two classifiers, the first without bias: one third of the first minus half of the second."""

    def __init__(self, classes: int = 3) -> None:
        super().__init__(classes)
        self.rows = nn.Conv2d(8, classes, 1, bias=False)
        self.other = nn.Conv2d(8, classes, 3, padding=1)

    def forward(self, x: Tensor) -> Tensor:
        y = self.features(x)
        return torch.sub(self.rows(y) / 3, self.other(y), alpha=0.5)


class Exploding(Small):
    """Gradients that are too large for any training."""

    def features(self, x: Tensor) -> Tensor:
        return super().features(x) * 1e20


class MainLast(Small):
    """An auxiliary head comes first in the output."""

    def __init__(self, classes: int = 3) -> None:
        super().__init__(classes)
        self.early = nn.Conv2d(8, classes, 1)

    def forward(self, x: Tensor) -> Any:
        y = self.stem(x)
        return [self.early(y), self.rows(self.body(y))]


class MainAlone(MainLast):
    """The same in training; only the logits in evaluation."""

    def forward(self, x: Tensor) -> Any:
        early, main = super().forward(x)
        return [early, main] if self.training else main


class ManyTasks(Small):
    """Other tasks come first, with one channel and with as many channels as there are classes."""

    def __init__(self, classes: int = 3) -> None:
        super().__init__(classes)
        self.heads = nn.ModuleDict({"depth": nn.Conv2d(8, 1, 1), "normals": nn.Conv2d(8, 3, 1), "seg": self.rows})
        del self.rows

    def forward(self, x: Tensor) -> dict[str, Tensor]:
        y = self.features(x)
        return {name: head(y) for name, head in self.heads.items()}


class LinearBeside(Small):
    """An auxiliary head for whole images, with a linear layer of one row per class."""

    def __init__(self, classes: int = 3) -> None:
        super().__init__(classes)
        self.whole = nn.Linear(8, classes)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        y = self.features(x)
        return self.rows(y), self.whole(y.mean(dim=(2, 3)))


class Regions(Small):
    """Context from the pixels of every class of an auxiliary head, as in OCR."""

    def __init__(self, classes: int = 3) -> None:
        super().__init__(classes)
        self.early = nn.Conv2d(8, classes, 1)
        self.rows = nn.Conv2d(16, classes, 1)

    def forward(self, x: Tensor) -> list[Tensor]:
        y = self.features(x)
        early = self.early(y)
        flat = y.flatten(2)
        regions = early.flatten(2).softmax(dim=2) @ flat.transpose(1, 2)
        context = (flat.transpose(1, 2) @ regions.transpose(1, 2)).softmax(dim=2) @ regions
        return [early, self.rows(torch.cat((y, context.transpose(1, 2).view_as(y)), dim=1))]


class Competing(Small):
    """Logits of an auxiliary head are multiplied by a softmax over classes, and feed the classifier."""

    def __init__(self, classes: int = 3) -> None:
        super().__init__(classes)
        self.early = nn.Conv2d(8, classes, 1)

    def forward(self, x: Tensor) -> Tensor:
        y = self.features(x)
        return self.rows(y * 50 * self.early(y).softmax(dim=1)[:, :1])


class Own(nn.Conv2d):
    """A subclass that computes the same."""


class OwnRows(Small):
    """A classifier of a subclass of nn.Conv2d."""

    def __init__(self, classes: int = 3) -> None:
        super().__init__(classes)
        self.rows = Own(8, classes, 1)


class ActiveRows(Small):
    """A classifier of a subclass with an activation."""

    class Conv(nn.Conv2d):
        def forward(self, x: Tensor) -> Tensor:
            return F.relu(super().forward(x))

    def __init__(self, classes: int = 3) -> None:
        super().__init__(classes)
        self.rows = self.Conv(8, classes, 1)


class Viewed(Small):
    """Gives the logits their shape with a fixed number of classes."""

    def forward(self, x: Tensor) -> Tensor:
        y = super().forward(x)
        return y.flatten(2).view(len(y), 3, *y.shape[2:])


class BiasBeside(Small):
    """Biases of the classes in a parameter of the network."""

    def __init__(self, classes: int = 3) -> None:
        super().__init__(classes)
        self.bias = nn.Parameter(torch.zeros(classes))

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x) + self.bias[:, None, None]


class Activated(Small):
    """An activation after the classifier."""

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x).softmax(dim=1)


def from_list(heads: list[dict[str, int]]) -> nn.Module:
    return Small(heads[-1]["classes"])


def wrapped(classes: int = 3) -> nn.Module:
    return nn.DataParallel(Plain(classes))
