"""Where the number of classes of a network is stated, and which of its layers have a row per class."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import torch
from torch import nn

from rcil.core.errors import ConfigError, RcilError
from rcil.nn.attached.builders import build_module, default_args, replaced
from rcil.nn.attached.dataflow import Flow
from rcil.nn.attached.outputs import find_classifier, outputs_of


def find_classes_arg(
    net: nn.Module, factory: str, args: Mapping[str, Any], classes: int, rows: Sequence[str]
) -> tuple[tuple[str, ...] | None, list[str]]:
    """The argument that states the number of classes, and the tensors that are larger with one class more."""
    mine = net.state_dict()
    for path in (*_numbers(args, classes), *default_args(factory, args, classes)):
        try:
            grown = _shapes(factory, replaced(args, path, classes + 1))
        except RcilError:
            continue
        wider = [key for key in mine if key in grown and mine[key].shape != grown[key]]
        if mine.keys() == grown.keys() and all(f"{name}.weight" in wider for name in rows):
            return path, wider
    return None, []


def _shapes(factory: str, args: Mapping[str, Any]) -> dict[str, torch.Size]:
    """Shapes of all tensors of a module; it is built without memory where its factory allows it."""
    try:
        with torch.device("meta"):
            built = build_module(factory, args)
    except RcilError:
        built = build_module(factory, args)
    return {key: value.shape for key, value in built.state_dict().items()}


def _numbers(args: Mapping[str, Any] | list[Any], value: int) -> Iterator[tuple[str, ...]]:
    """Where nested arguments have this number, as keys of dictionaries and indices of lists."""
    for key, found in args.items() if isinstance(args, Mapping) else enumerate(args):
        if isinstance(found, dict | list):
            yield from ((str(key), *inner) for inner in _numbers(found, value))
        elif found == value and isinstance(found, int) and not isinstance(found, bool):
            yield (str(key),)


def find_auxiliary(
    net: nn.Module, flow: Flow, wider: Sequence[str], rows: Sequence[str], classes: int
) -> tuple[str, ...]:
    """Layers beside the classifier that have one row per class: those of `wider` tensors, or of further outputs."""
    known = dict(net.named_modules())  # further names of the same modules are left out
    found = []
    for key in wider:
        name = key.rpartition(".")[0]
        if name not in known or name in rows:
            continue
        if not isinstance(known[name], nn.Conv2d | nn.Linear):
            raise ConfigError(
                f"'{key}' has one entry per class and belongs to a {type(known[name]).__name__}",
                "Rows can only be added to an nn.Conv2d, or an nn.Linear of an auxiliary head. Build the network "
                "without this module.",
            )
        found.append(name)
    for _, value in outputs_of(flow.output) if not wider else ():
        try:
            found += find_classifier(flow, value, classes)
        except RcilError:
            continue
    return tuple(name for name in dict.fromkeys(found) if name not in rows)
