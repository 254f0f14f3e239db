"""Networks of "another library" with unusual parts, for attaching."""

from __future__ import annotations

import sys
import warnings
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

NAMES = ["background", "ball", "cone"]


def norm_of(kind: str, channels: int) -> nn.Module:
    kinds = {
        "batch": lambda: nn.BatchNorm2d(channels),
        "group": lambda: nn.GroupNorm(4, channels),
        "none": nn.Identity,
        "plain": lambda: nn.BatchNorm2d(channels, affine=False),
    }
    return kinds[kind]()


class NormAct(nn.BatchNorm2d):
    """Norm and activation in one module, as timm has it."""

    def __init__(self, channels: int) -> None:
        super().__init__(channels)
        self.drop, self.act = nn.Identity(), nn.ReLU(inplace=True)

    def forward(self, x: Tensor) -> Tensor:
        return self.act(self.drop(super().forward(x)))


class Plain(nn.Module):
    """Strided, dilated, grouped, reflected and transposed convs; in-place activations; a dictionary as output."""

    def __init__(self, classes: int = 3, norm: str = "batch", bias: bool = True, auxiliary: bool = False) -> None:
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(3, 8, 3, 2, 1, bias=False), norm_of(norm, 8), nn.ReLU(inplace=True))
        self.down = nn.Sequential(nn.Conv2d(8, 16, 3, 2, 1), norm_of(norm, 16), nn.ReLU(inplace=True))
        mirrored = nn.Conv2d(16, 16, 3, 1, 2, 2, groups=4, bias=False, padding_mode="reflect")
        self.wide = nn.Sequential(mirrored, norm_of(norm, 16), nn.ReLU(inplace=True))
        self.fused = nn.Sequential(nn.Conv2d(16, 16, 3, padding="same", bias=False), NormAct(16))
        self.point = nn.Sequential(nn.Conv2d(16, 16, 1), norm_of(norm, 16))
        self.up = nn.ConvTranspose2d(16, 16, 2, 2)
        self.head = nn.Conv2d(16, classes, 3, 1, 1, bias=bias)
        self.aux = nn.Sequential(nn.Conv2d(16, 8, 3, 1, 1), nn.Conv2d(8, classes, 1)) if auxiliary else None

    def forward(self, x: Tensor) -> dict[str, Tensor]:
        y = self.fused(self.wide(self.down(self.stem(x))))
        y = F.relu_(self.point(y))
        found = {"out": F.interpolate(self.head(self.up(y)), x.shape[-2:], mode="bilinear")}
        if self.aux is not None:
            found["aux"] = self.aux(y)
        return found


class PreActivation(nn.Module):
    """Norm, activation, conv, with a shortcut; the first norm of a block reads a sum."""

    def __init__(self, classes: int = 3) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, 8, 3, 2, 1)
        self.norms = nn.ModuleList(nn.BatchNorm2d(8) for _ in range(4))
        self.convs = nn.ModuleList(nn.Conv2d(8, 8, 3, 1, 1, bias=False) for _ in range(4))
        self.last = nn.BatchNorm2d(8)
        self.rows = nn.Conv2d(8, classes, 1)

    def forward(self, x: Tensor) -> Tensor:
        x = self.stem(x)
        for block in (0, 2):
            y = self.convs[block](F.relu(self.norms[block](x)))
            x = x + self.convs[block + 1](F.relu(self.norms[block + 1](y)))
        return self.rows(F.relu(self.last(x)))


class Shared(nn.Module):
    """One conv that runs twice, one with a kernel that another conv also has, and one that is alone."""

    def __init__(self, classes: int = 3) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, 8, 3, 2, 1)
        self.twice = nn.Sequential(nn.Conv2d(8, 8, 3, 1, 1), nn.BatchNorm2d(8))
        self.one, self.other = nn.Conv2d(8, 8, 3, 1, 1), nn.Conv2d(8, 8, 3, 1, 1)
        self.other.weight = self.one.weight
        self.alone = nn.Sequential(nn.Conv2d(8, 8, 3, 1, 1), nn.BatchNorm2d(8), nn.ReLU())
        self.rows = nn.Conv2d(8, classes, 1)

    def forward(self, x: Tensor) -> Tensor:
        x = self.twice(F.relu(self.twice(self.stem(x))))
        return self.rows(self.alone(self.one(x) + self.other(x)))


class Summed(nn.Module):
    """Two classifiers at two resolutions whose outputs are added, and sizes that must be multiples of 4."""

    def __init__(self, classes: int = 3) -> None:
        super().__init__()
        self.fine = nn.Sequential(nn.Conv2d(3, 8, 3, 2, 1), nn.BatchNorm2d(8), nn.ReLU())
        self.coarse = nn.Sequential(nn.Conv2d(8, 12, 3, 2, 1), nn.BatchNorm2d(12), nn.ReLU())
        self.low, self.high = nn.Conv2d(8, classes, 1), nn.Conv2d(12, classes, 1)

    def forward(self, x: Tensor) -> Tensor:
        if x.shape[-1] % 4 or x.shape[-2] % 4:
            raise RuntimeError("wrong size")
        fine = self.fine(x)
        coarse = self.coarse(fine)
        return self.low(fine) + F.interpolate(self.high(coarse), scale_factor=2, mode="bilinear")


class Branching(nn.Module):
    """Code that a symbolic trace cannot follow, and a norm that is not the only reader of its conv."""

    def __init__(self, classes: int = 3) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, 8, 3, 2, 1)
        self.read_twice, self.norm = nn.Conv2d(8, 8, 3, 1, 1), nn.BatchNorm2d(8)
        self.rows = nn.Conv2d(8, classes, 1)

    def forward(self, x: Tensor) -> tuple[Tensor, float]:
        x = self.stem(x)
        y = self.read_twice(x)
        if float(x.detach().mean()) < 1e9 and self.read_twice.kernel_size == (3, 3):
            y = self.norm(y) + y
        return self.rows(y), 0.0


class Softmaxed(Plain):
    """Returns probabilities."""

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x)["out"].softmax(dim=1)


class Transposed(nn.Module):
    """Ends in a transposed conv."""

    def __init__(self, classes: int = 3) -> None:
        super().__init__()
        self.body, self.rows = nn.Conv2d(3, 8, 3, 2, 1), nn.ConvTranspose2d(8, classes, 2, 2)

    def forward(self, x: Tensor) -> Tensor:
        return self.rows(self.body(x))


class Refined(nn.Module):
    """Its last conv reads features and logits of an earlier one, so that it has an input per class."""

    def __init__(self, classes: int = 3) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Conv2d(3, 8, 3, 2, 1), nn.Conv2d(8, 8, 3, 1, 1))
        self.rows, self.again = nn.Conv2d(8, classes, 1), nn.Conv2d(8 + classes, classes, 1)

    def forward(self, x: Tensor) -> Tensor:
        y = self.body(x)
        return self.again(torch.cat((y, self.rows(y)), dim=1))


class Standardised(nn.Module):
    """Kernels that are standardised in every pass, as in big-transfer networks, and group norms."""

    class Conv(nn.Conv2d):
        def forward(self, x: Tensor) -> Tensor:
            kernel = self.weight - self.weight.mean(dim=(1, 2, 3), keepdim=True)
            return self._conv_forward(x, kernel / (kernel.std(dim=(1, 2, 3), keepdim=True) + 1e-5), self.bias)

    def __init__(self, classes: int = 3) -> None:
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(3, 16, 3, 2, 1), nn.BatchNorm2d(16), nn.ReLU())
        self.wide = nn.Sequential(self.Conv(16, 32, 3, 2, 1), nn.GroupNorm(4, 32), nn.ReLU())
        self.body = nn.Sequential(nn.Conv2d(32, 32, 3, 1, 1), nn.GroupNorm(4, 32), nn.ReLU())
        self.rows = nn.Conv2d(32, classes, 1)

    def forward(self, x: Tensor) -> Tensor:
        return self.rows(self.body(self.wide(self.stem(x))))


def exiting(classes: int = 3) -> nn.Module:
    raise SystemExit(f"{classes} classes are not enough")


class Linear(nn.Module):
    """Classifies pixels with a linear layer."""

    def __init__(self, classes: int = 3) -> None:
        super().__init__()
        self.body, self.rows = nn.Conv2d(3, 8, 3, 2, 1), nn.Linear(8, classes)

    def forward(self, x: Tensor) -> Tensor:
        return self.rows(self.body(x).permute(0, 2, 3, 1)).permute(0, 3, 1, 2)


def not_a_network(classes: int = 3) -> int:
    return classes


def uses_config(config: object) -> nn.Module:
    return Plain(config["classes"])  # type: ignore[index]


def make_config(classes: int = 3) -> dict[str, int]:
    return {"classes": classes}


def seeded(factory: type[nn.Module], **args: object) -> nn.Module:
    torch.manual_seed(0)
    return factory(**args)


class Small(nn.Module):
    """A plain network, which the classes below change in one respect each."""

    def __init__(self, classes: int = 3) -> None:
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(3, 8, 3, 2, 1), nn.BatchNorm2d(8), nn.ReLU(inplace=True))
        self.body = nn.Sequential(nn.Conv2d(8, 8, 3, 1, 1, bias=False), nn.BatchNorm2d(8), nn.ReLU(inplace=True))
        self.rows = nn.Conv2d(8, classes, 1)

    def features(self, x: Tensor) -> Tensor:
        return self.body(self.stem(x))

    def forward(self, x: Tensor) -> Any:
        return self.rows(self.features(x))


class Renamed(Small):
    """Every module has two names; the forward pass uses the second one."""

    def __init__(self, classes: int = 3) -> None:
        super().__init__(classes)
        self.both, self.head = nn.Sequential(self.stem, self.body), self.rows

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.both(x))


class Listed(Small):
    """Two layers that run from a list of Python, where they cannot be replaced."""

    def __init__(self, classes: int = 3) -> None:
        super().__init__(classes)
        self.extra, self.norm = nn.Conv2d(8, 8, 3, 1, 1), nn.BatchNorm2d(8)
        self.order = [self.extra, self.norm]

    def features(self, x: Tensor) -> Tensor:
        x = super().features(x)
        for layer in self.order:
            x = layer(x)
        return x


class ListedRows(Small):
    """A classifier that runs from a list of Python."""

    def __init__(self, classes: int = 3) -> None:
        super().__init__(classes)
        self.order = [self.rows]

    def forward(self, x: Tensor) -> Tensor:
        return self.order[0](self.features(x))


class Chatty(Small):
    """Returns a tuple in training and a map in evaluation."""

    def forward(self, x: Tensor) -> Any:
        y = self.features(x)
        return (y, self.rows(y)) if self.training else self.rows(y)


class Fields(NamedTuple):
    features: Tensor
    logits: Tensor


class Named(Small):
    """Returns a named tuple whose first map are features."""

    def forward(self, x: Tensor) -> Fields:
        y = self.features(x)
        return Fields(y, self.rows(y))


@dataclass
class Record:
    logits: Tensor


class Recorded(Small):
    """Returns a dataclass."""

    def forward(self, x: Tensor) -> Record:
        return Record(super().forward(x))


class Circular(Small):
    """Padding that wraps around."""

    def __init__(self, classes: int = 3) -> None:
        super().__init__(classes)
        self.body[0] = nn.Conv2d(8, 8, 3, padding=2, dilation=2, groups=2, padding_mode="circular")


class Recomputed(Small):
    """Activations are computed again in the backward pass."""

    reentrant = False

    def features(self, x: Tensor) -> Tensor:
        return checkpoint(self.body, self.stem(x), use_reentrant=self.reentrant)


class Reentrant(Recomputed):
    reentrant = True


class Picky(Small):
    """Accepts images from 256 x 256 on."""

    def forward(self, x: Tensor) -> Tensor:
        assert min(x.shape[-2:]) >= 256, "too small"
        return super().forward(x)


class HalfPrecision(Small):
    """Weights in bf16."""

    def __init__(self, classes: int = 3) -> None:
        super().__init__(classes)
        self.to(torch.bfloat16)


class Grid(Small):
    """Makes a tensor on the CPU in fp32 itself."""

    def features(self, x: Tensor) -> Tensor:
        y = super().features(x)
        grid = F.affine_grid(torch.eye(2, 3).repeat(len(y), 1, 1), list(y.shape), align_corners=False)
        return F.grid_sample(y, grid, align_corners=False)


class Looped(Small):
    """The classifier runs at two resolutions."""

    def forward(self, x: Tensor) -> Tensor:
        y = self.features(x)
        return self.rows(y) + F.interpolate(self.rows(F.avg_pool2d(y, 2)), y.shape[-2:])


class Hooked(Small):
    """A hook with variables of its own, which copies would share."""

    def __init__(self, classes: int = 3) -> None:
        super().__init__(classes)
        self.kept: dict[str, Tensor] = {}
        self.stem.register_forward_hook(lambda module, inputs, output: self.kept.__setitem__("stem", output))

    def features(self, x: Tensor) -> Tensor:
        return super().features(x) + self.kept["stem"]


class Keeping(Small):
    """Keeps a tensor of its last pass."""

    def features(self, x: Tensor) -> Tensor:
        self.last = super().features(x)
        return self.last


class WeightNorm(Small):
    """The old weight norm, whose modules cannot be copied."""

    def __init__(self, classes: int = 3) -> None:
        super().__init__(classes)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            self.body[0] = nn.utils.weight_norm(self.body[0])


class Lazy(Small):
    """A conv without shapes."""

    def __init__(self, classes: int = 3) -> None:
        super().__init__(classes)
        self.body[0] = nn.LazyConv2d(8, 3)


class RandomBuffer(Small):
    """A buffer outside the state dict that differs in every instance."""

    def __init__(self, classes: int = 3) -> None:
        super().__init__(classes)
        self.register_buffer("noise", torch.randn(1, 8, 1, 1), persistent=False)

    def features(self, x: Tensor) -> Tensor:
        return super().features(x) * self.noise


class NeedsTarget(Small):
    """Returns a loss in training."""

    def forward(self, x: Tensor, target: Tensor | None = None) -> Tensor:
        logits = super().forward(x)
        return F.cross_entropy(logits, target) if self.training else logits


class WithoutGradient(Small):
    """No gradient reaches the convs before the classifier."""

    @torch.no_grad()
    def features(self, x: Tensor) -> Tensor:
        return super().features(x)


class InPlace(Small):
    """Changes a tensor that its backward pass needs, in training only."""

    def features(self, x: Tensor) -> Tensor:
        y = super().features(x)
        if self.training:
            z = y.exp()
            y = y + z
            z.add_(1)
        return y


class Endless(Small):
    """Logits that are no numbers."""

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x) * float("nan")


class Talking(Small):
    """Prints in every pass."""

    def forward(self, x: Tensor) -> Tensor:
        sys.stdout.write("| talking |\n")
        return super().forward(x)


def scripted(classes: int = 3) -> nn.Module:
    return torch.jit.trace(Small(classes).eval(), torch.zeros(1, 3, 32, 32))
