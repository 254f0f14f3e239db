"""Folding: every RC block becomes one conv, and every norm is absorbed into a conv."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TypeVar, cast

import torch
from torch import nn

from rcil.nn.classifier import IncrementalClassifier
from rcil.nn.network import Network
from rcil.nn.units.convnorm import ConvNorm, ConvSum
from rcil.nn.units.norms import is_norm
from rcil.nn.units.rc import RCConv

M = TypeVar("M", bound=nn.Module)

_KINDS: dict[type[nn.Module], str] = {
    RCConv: "rc",
    ConvNorm: "conv+norm",
    ConvSum: "sum+norm",
    IncrementalClassifier: "classifier",
}


@dataclass(frozen=True)
class FoldedLayer:
    """A layer that was folded."""

    name: str
    kind: str
    """`rc`, `conv+norm`, `sum+norm` or `classifier`."""


@dataclass(frozen=True)
class FoldReport:
    """The layers that `fold` folded, and the parameters before and after."""

    layers: tuple[FoldedLayer, ...]
    parameters_before: int
    parameters_after: int

    def count(self, kind: str) -> int:
        """How many layers of this kind were folded."""
        return sum(layer.kind == kind for layer in self.layers)


N = TypeVar("N", bound=Network)


def fold(model: N) -> tuple[N, FoldReport]:
    """The deployed form of `model` in evaluation mode, and a report.

    `model` is not changed. The result computes the same function as `model.eval()`; folding it again changes nothing.
    """
    folded, report = fold_layers(model, loose_norms=model.loose_norms)
    folded.arch = model.arch.replace(rc=None, folded=True, norm="batch")
    return folded, report


@torch.no_grad()
def fold_layers(
    module: M, extra: Mapping[type[nn.Module], str] | None = None, *, loose_norms: bool = False
) -> tuple[M, FoldReport]:
    """Fold any module built from RC blocks and conv+norm units, including a single unit.

    Args:
        module: The module, which is not changed.
        extra: Further types with a `fold()` method, each with its name in the report.
        loose_norms: Whether norms that belong to no unit may stay.
    """
    layers: list[FoldedLayer] = []
    kinds = {**_KINDS, **(extra or {})}

    def visit(name: str, module: nn.Module) -> nn.Module | None:
        kind = kinds.get(type(module))
        if kind is None or _is_folded(module):
            return None
        layers.append(FoldedLayer(name, kind))
        return module.fold()  # type: ignore[operator, no-any-return]

    folded = replace_modules(module, visit)
    units = RCConv | ConvNorm if loose_norms else RCConv
    left = [n for n, part in folded.named_modules() if isinstance(part, units) or (is_norm(part) and not loose_norms)]
    if left:
        raise AssertionError(f"not folded: {left}")
    return folded.eval(), FoldReport(tuple(layers), count_parameters(module), count_parameters(folded))


def _is_folded(module: nn.Module) -> bool:
    """Whether a unit that keeps its type when folded has nothing left to fold."""
    if isinstance(module, ConvSum):
        return module.norm is None
    return isinstance(module, IncrementalClassifier) and len(module.groups) == 1


def duplicate(model: M, memo: dict[int, object]) -> M:
    """A deep copy that shares the process groups of synchronised norms, which cannot be copied.

    Args:
        model: Any network.
        memo: Replacements of objects, by the id of the object.
    """
    groups = (getattr(module, "group", None) for module in model.modules())
    return copy.deepcopy(model, {id(group): group for group in groups if group is not None} | memo)


def replace_modules(model: M, visit: Callable[[str, nn.Module], nn.Module | None]) -> M:
    """A copy of `model` in which every module for which `visit(name, module)` returns one is replaced by it.

    The root is visited too, under the empty name; replaced modules are not entered. A module that has several names is
    visited once, under the first, and replaced wherever it is.
    """
    root = visit("", model)
    if root is not None:
        return cast("M", root)
    clone = duplicate(model, {})
    seen: dict[nn.Module, nn.Module | None] = {}

    def walk(parent: nn.Module, prefix: str) -> None:
        for key, child in list(parent._modules.items()):
            if child is None:
                continue
            name = f"{prefix}{key}"
            known = child in seen
            new = seen[child] if known else visit(name, child)
            seen[child] = new
            if new is not None:
                setattr(parent, key, new)
            elif not known:
                walk(child, f"{name}.")

    walk(clone, "")
    return clone


def count_parameters(model: nn.Module) -> int:
    """Number of parameters, including frozen ones."""
    return sum(parameter.numel() for parameter in model.parameters())
