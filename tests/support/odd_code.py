"""Networks of "another library" whose code looks at its layers, or keeps them in unusual ways."""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.nn.functional as F
from odd_networks import Small
from torch import Tensor, nn


class AsksType(Small):
    """Treats convs in another way than other layers; a norm reads the result."""

    def __init__(self, classes: int = 3) -> None:
        super().__init__(classes)
        self.more = nn.Conv2d(8, 8, 3, 1, 1)

    def features(self, x: Tensor) -> Tensor:
        y = self.more(self.stem(x))
        if isinstance(self.more, nn.Conv2d):
            y = y * 1.5
        return self.body(y)


class AsksWeight(Small):
    """Reads the dtype of a conv."""

    def features(self, x: Tensor) -> Tensor:
        return F.relu(self.body[0](self.stem(x).to(self.body[0].weight.dtype)))


class SomeWeights(AsksWeight):
    """The same, beside a conv that is not looked at."""

    def __init__(self, classes: int = 3) -> None:
        super().__init__(classes)
        self.free = nn.Conv2d(8, 8, 3, 1, 1)

    def features(self, x: Tensor) -> Tensor:
        return self.free(super().features(x))


class Lambda(nn.Module):
    def __init__(self, function: Callable[[Tensor], Tensor]) -> None:
        super().__init__()
        self.function = function

    def forward(self, x: Tensor) -> Tensor:
        return self.function(x)


class Closure(Small):
    """A function that refers to the network, so that copies of the network run layers of the first one."""

    def __init__(self, classes: int = 3) -> None:
        super().__init__(classes)
        self.more = nn.Conv2d(8, 8, 3, 1, 1)
        self.call = Lambda(lambda y: self.more(y))

    def features(self, x: Tensor) -> Tensor:
        return self.call(super().features(x))


class Unregistered(Small):
    """Layers in a list of Python alone, which no state dict has."""

    def __init__(self, classes: int = 3) -> None:
        super().__init__(classes)
        self.blocks = [nn.Conv2d(8, 8, 3, 1, 1)]

    def features(self, x: Tensor) -> Tensor:
        return self.blocks[0](super().features(x))


class RandomTensor(Small):
    """A random tensor that is neither a parameter nor a buffer."""

    def __init__(self, classes: int = 3) -> None:
        super().__init__(classes)
        self.noise = torch.randn(1, 8, 1, 1)

    def features(self, x: Tensor) -> Tensor:
        return super().features(x) * self.noise


class SkipsInTraining(Small):
    """Leaves out a module in training, as stochastic depth does."""

    def features(self, x: Tensor) -> Tensor:
        y = self.stem(x)
        return y if self.training else self.body(y)


class Patches(Small):
    """Accepts multiples of 14, or of another number."""

    def __init__(self, classes: int = 3, side: int = 14) -> None:
        super().__init__(classes)
        self.side = side

    def forward(self, x: Tensor) -> Tensor:
        assert x.shape[-1] % self.side == 0 and x.shape[-2] % self.side == 0, "wrong size"
        return super().forward(x)


class Square(Small):
    """Accepts squares."""

    def forward(self, x: Tensor) -> Tensor:
        assert x.shape[-1] == x.shape[-2], "no square"
        return super().forward(x)


class Positions(Small):
    """Positions for maps of 16 x 16, which some more pixels do not change."""

    def __init__(self, classes: int = 3) -> None:
        super().__init__(classes)
        self.stem[0] = nn.Conv2d(3, 8, 8, 8)
        self.positions = nn.Parameter(torch.randn(1, 8, 16, 16))

    def features(self, x: Tensor) -> Tensor:
        return self.body(self.stem(x) + self.positions)
