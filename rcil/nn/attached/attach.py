"""Attaching: look at a network, describe it, and check that the described network computes the same."""

from __future__ import annotations

import copy
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from rcil.core.errors import ConfigError, RcilError, first_line
from rcil.model.attached import AttachedArchitecture, Unit
from rcil.nn.attached.builders import build_module, checked_factory, default_args, replaced
from rcil.nn.attached.dataflow import Flow, watch
from rcil.nn.attached.network import AttachedNetwork
from rcil.nn.attached.outputs import check_classifier, find_classifier, find_logits, outputs_of, pick, shown
from rcil.nn.attached.requirements import (
    check_buffers,
    check_function,
    check_growth,
    check_training,
    copied,
    idle_units,
)
from rcil.nn.attached.stages import find_stages, modules_until
from rcil.nn.attached.units import find_units, why_no_branches
from rcil.nn.classifier import check_names

SIDES = (128, 224, 256, 512)
"""Sides of the image that a network is watched with; the first that it accepts."""
MULTIPLES = (1, 2, 4, 8, 16, 32, 64)


def attach_network(
    net: nn.Module,
    factory: str,
    args: Mapping[str, Any],
    names: Sequence[str],
    *,
    classifier: str | Sequence[str] | None = None,
    maps: Sequence[str] | None = None,
) -> AttachedNetwork:
    """The network behind our interface, with the weights of `net`, which is not changed.

    Args:
        net: A module with the names and shapes of the one that the factory builds.
        factory: The import path of the builder.
        args: Its arguments.
        names: Class names in row order, background first.
        classifier: Name of the conv with one row per class, or of several whose outputs are added; found by default.
        maps: Names of the modules whose outputs are distilled; found by default.
    """
    check_names(names)
    factory, plain_args = checked_factory(factory, args)
    net = copied(net)
    check_buffers(net, factory, plain_args)
    flow = _watched(net)
    output, logits = find_logits(flow, len(names))
    if len(names) == 1:
        raise ConfigError(
            "the network has one output channel, which separates a class from everything else",
            "Build it with two classes, background first; a channel of zeros for background gives the same masks.",
        )
    rows = _given_classifier(net, flow, classifier, len(names)) or find_classifier(flow, logits, len(names))
    unused = _unused(net, flow.image, output, len(names))
    trained = {name for name, _ in net.named_parameters() if name not in unused}
    classes_arg, wider = _classes_arg(net, factory, plain_args, len(names), rows)
    units = find_units(flow, net, rows, trained)
    _check_branches(units, flow, rows, trained, factory)
    first = min(call.first for call in flow.calls if call.name in rows)
    stages = find_stages(flow, first) if maps is None else _named_stages(flow, maps)
    arch = AttachedArchitecture(
        factory=factory,
        args=plain_args,
        units=units,
        classifier=rows,
        auxiliary=_auxiliary(net, flow, wider, rows, len(names)),
        maps=tuple(call.name for call in stages),
        early=modules_until(flow, net, stages),
        unused=tuple(sorted(unused)),
        output=output,
        classes_arg=classes_arg,
        multiple=_multiple(net, flow.image.shape[-1]),
    )
    idle = idle_units(AttachedNetwork(copy.deepcopy(net), arch, [names]).eval(), flow.image)
    if idle:
        units = tuple(unit for unit in units if unit.conv not in idle)
        _check_branches(units, flow, rows, trained, factory)
        arch = arch.replace(units=units)
    network = AttachedNetwork(copy.deepcopy(net), arch, [names]).eval()
    check_function(net, network, flow.image)
    check_growth(network, flow.image)
    check_training(network, flow.image)
    return network


def default_names(net: nn.Module) -> list[str]:
    """`background`, `class_1`... for every output channel of a network."""
    flow = _watched(copied(net))
    maps = [value for _, value in outputs_of(flow.output)]
    if not maps:
        raise ConfigError(
            f"the network returns {shown(flow.output)}, and no map [N, classes, H, W]",
            "Name a network that returns logits.",
        )
    return ["background", *(f"class_{row}" for row in range(1, maps[0].shape[1]))]


def _watched(net: nn.Module) -> Flow:
    """One pass of the network at the first size that it accepts."""
    problem: Exception | None = None
    for side in SIDES:
        try:
            return watch(net, _image(side, side))
        except Exception as error:
            problem = problem or error
    assert problem is not None
    raise ConfigError(
        f"the network does not run on an image [1, 3, {SIDES[0]}, {SIDES[0]}]: {type(problem).__name__}: "
        f"{first_line(problem)}",
        "Its forward function must take a batch of images [N, 3, H, W] alone and return logits.",
    ) from problem


def _image(height: int, width: int) -> Tensor:
    return torch.randn(1, 3, height, width, generator=torch.Generator().manual_seed(0))


def _given_classifier(
    net: nn.Module, flow: Flow, classifier: str | Sequence[str] | None, classes: int
) -> tuple[str, ...]:
    if classifier is None:
        return ()
    names = (classifier,) if isinstance(classifier, str) else tuple(classifier)
    known = dict(net.named_modules())
    for name in names:
        calls = [call for call in flow.calls if call.name == name]
        if not isinstance(known.get(name), nn.Conv2d) or not calls:
            kind = type(known[name]).__name__ if name in known else "nothing"
            raise ConfigError(f"the classifier '{name}' is {kind}, not an nn.Conv2d that runs", "Name a conv.")
        check_classifier(calls[0], flow, classes)
    return names


def _named_stages(flow: Flow, maps: Sequence[str]) -> list[Any]:
    found = []
    for name in maps:
        calls = [call for call in flow.calls if call.name == name]
        if len(calls) != 1 or calls[0].output is None or calls[0].output.ndim != 4:
            raise ConfigError(f"the module '{name}' does not return one map", "Name modules that run once.")
        found.append(calls[0])
    return sorted(found, key=lambda call: call.end)


def _check_branches(
    units: Sequence[Unit], flow: Flow, rows: Sequence[str], trained: Collection[str], factory: str
) -> None:
    """Raise if no conv gets a second branch."""
    if not any(unit.rc for unit in units):
        raise ConfigError(
            f"{factory} has no conv that can get a second branch{why_no_branches(flow, rows, trained)}",
            "Branches are for convs (nn.Conv2d) that run once; linear layers and transposed convs get none.",
        )


def _unused(net: nn.Module, image: Tensor, output: str | int | None, classes: int) -> set[str]:
    """Names of the parameters that the logits do not depend on, such as those of auxiliary heads."""
    probe = copy.deepcopy(net)
    probe.requires_grad_(True)
    try:
        with torch.enable_grad():
            pick(probe(image), output, classes).sum().backward()  # type: ignore[no-untyped-call]
    except RuntimeError as error:
        raise ConfigError(
            f"the logits of the network have no gradient: {first_line(error)}", "Networks must be differentiable."
        ) from error
    return {name for name, parameter in probe.named_parameters() if parameter.grad is None}


def _classes_arg(
    net: nn.Module, factory: str, args: Mapping[str, Any], classes: int, rows: Sequence[str]
) -> tuple[tuple[str, ...] | None, list[str]]:
    """The argument that states the number of classes, and the modules that get one row more with one class more."""
    mine = net.state_dict()
    for path in (*_numbers(args, classes), *default_args(factory, args, classes)):
        try:
            grown = _shapes(factory, replaced(args, path, classes + 1))
        except RcilError:
            continue
        wider = [key for key in mine if key in grown and mine[key].shape != grown[key]]
        if mine.keys() == grown.keys() and all(f"{name}.weight" in wider for name in rows):
            return path, list(dict.fromkeys(key.rpartition(".")[0] for key in wider))
    return None, []


def _shapes(factory: str, args: Mapping[str, Any]) -> dict[str, torch.Size]:
    """Shapes of all tensors of a module; it is built without memory where its factory allows it."""
    try:
        with torch.device("meta"):
            built = build_module(factory, args)
    except RcilError:
        built = build_module(factory, args)
    return {key: value.shape for key, value in built.state_dict().items()}


def _numbers(args: Mapping[str, Any], value: int) -> Iterator[tuple[str, ...]]:
    """Where nested arguments have this number."""
    for key, found in args.items():
        if isinstance(found, dict):
            yield from ((key, *inner) for inner in _numbers(found, value))
        elif found == value and isinstance(found, int) and not isinstance(found, bool):
            yield (key,)


def _auxiliary(net: nn.Module, flow: Flow, wider: Sequence[str], rows: Sequence[str], classes: int) -> tuple[str, ...]:
    """Convs beside the classifier that have one row per class: `wider` ones, or those of further outputs."""
    known = dict(net.named_modules())  # further names of the same modules are left out
    found = [name for name in wider if name in known]
    for name in found:
        if not isinstance(net.get_submodule(name), nn.Conv2d):
            raise ConfigError(
                f"'{name}' has one row per class and is a {type(net.get_submodule(name)).__name__}",
                "Rows can only be added to an nn.Conv2d. Build the network without this module.",
            )
    for _, value in outputs_of(flow.output) if not wider else ():
        try:
            found += find_classifier(flow, value, classes)
        except RcilError:
            continue
    return tuple(name for name in dict.fromkeys(found) if name not in rows)


@torch.no_grad()
def _multiple(net: nn.Module, side: int) -> int:
    """The number that height and width must be a multiple of."""
    for multiple in MULTIPLES:
        try:
            net(_image(side + multiple, side + 3 * multiple))
        except Exception:
            continue
        return multiple
    raise ConfigError(
        f"the network accepts images of {side} x {side} pixels only",
        "Networks for one size cannot be trained on crops.",
    )
