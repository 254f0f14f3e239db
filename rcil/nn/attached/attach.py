"""Attaching: look at a network, describe it, and check that the described network computes the same."""

from __future__ import annotations

import copy
from collections.abc import Collection, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from rcil.core.errors import ConfigError, first_line
from rcil.model.attached import AttachedArchitecture, Unit
from rcil.nn.attached.builders import checked_factory
from rcil.nn.attached.class_count import find_auxiliary, find_classes_arg
from rcil.nn.attached.dataflow import Flow, watch
from rcil.nn.attached.network import AttachedNetwork
from rcil.nn.attached.outputs import check_classifier, class_channels, find_classifier, find_logits, pick
from rcil.nn.attached.replaceable import fitting_units, idle_units
from rcil.nn.attached.requirements import (
    check_buffers,
    check_finite,
    check_function,
    check_growth,
    check_parameters,
    check_rebuilt,
    check_training,
    copied,
    training_output,
)
from rcil.nn.attached.row_scales import row_scales
from rcil.nn.attached.stages import find_stages, modules_until
from rcil.nn.attached.units import find_units, why_no_branches
from rcil.nn.classifier import check_names

SIDES = (128, 224, 240, 256, 336, 512)
"""Sides of the image that a network is watched with; the first that it accepts."""
MULTIPLES = (1, 2, 3, 4, 5, 6, 7, 8, 10, 12, 14, 16, 20, 24, 28, 32, 40, 48, 56, 64)
FAR = 64
"""How much larger the images are, at least, that show whether a network takes more than one size."""


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
    check_parameters(flow, net)
    check_rebuilt(net, flow.image, factory, plain_args)
    given = (classifier,) if isinstance(classifier, str) else tuple(classifier or ())
    _check_given(net, flow, given)
    output, logits = find_logits(flow, len(names), given)
    check_finite(logits)
    if len(names) == 1:
        raise ConfigError(
            "the network has one output channel, which separates a class from everything else",
            "Build it with two classes, background first; a channel of zeros for background gives the same masks.",
        )
    for name in given:
        check_classifier(next(call for call in flow.calls if call.name == name), flow, len(names))
    rows = given or find_classifier(flow, logits, len(names))
    unused = _unused(net, flow.image, output, len(names))
    trained = {name for name, _ in net.named_parameters() if name not in unused}
    classes_arg, wider = find_classes_arg(net, factory, plain_args, len(names), rows)
    units = find_units(flow, net, rows, trained)
    _check_branches(units, flow, rows, trained, factory)
    first = min(call.first for call in flow.calls if call.name in rows)
    stages = find_stages(flow, first) if maps is None else _named_stages(flow, maps)
    arch = AttachedArchitecture(
        factory=factory,
        args=plain_args,
        units=units,
        classifier=rows,
        scales=row_scales(net, flow.image, rows, output, len(names)),
        auxiliary=find_auxiliary(net, flow, wider, rows, len(names)),
        maps=tuple(call.name for call in stages),
        early=modules_until(flow, net, stages),
        unused=tuple(sorted(unused)),
        output=output,
        classes_arg=classes_arg,
        multiple=_multiple(net, flow.image.shape[-1]),
    )
    arch = arch.replace(units=fitting_units(net, arch, names, flow.image))
    _check_kept(units, arch.units, factory)
    idle = idle_units(AttachedNetwork(copy.deepcopy(net), arch, [names]).eval(), flow.image)
    arch = arch.replace(units=tuple(unit for unit in arch.units if unit.conv not in idle))
    _check_branches(arch.units, flow, rows, trained, factory)
    network = AttachedNetwork(copy.deepcopy(net), arch, [names]).eval()
    check_function(net, network, flow.image)
    check_growth(network, flow.image)
    network.arch = arch.replace(training_output=training_output(network, flow.image))
    check_training(network, flow.image)
    return network


def default_names(net: nn.Module, classifier: Sequence[str] | None = None) -> list[str]:
    """`background`, `class_1`... for every row of the classifier, or every output channel of the network."""
    known = dict(net.named_modules())
    convs = [known[name] for name in classifier or () if name in known]
    if convs and isinstance(convs[0], nn.Conv2d):
        return ["background", *(f"class_{row}" for row in range(1, convs[0].out_channels))]
    channels = class_channels(_watched(copied(net)))
    return ["background", *(f"class_{row}" for row in range(1, channels))]


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


def _check_given(net: nn.Module, flow: Flow, classifier: Sequence[str]) -> None:
    """Raise unless all names are those of convs that run."""
    known = dict(net.named_modules())
    for name in classifier:
        if not isinstance(known.get(name), nn.Conv2d) or all(call.name != name for call in flow.calls):
            kind = type(known[name]).__name__ if name in known else "nothing"
            raise ConfigError(f"the classifier '{name}' is {kind}, not an nn.Conv2d that runs", "Name a conv.")


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


def _check_kept(before: Sequence[Unit], after: Sequence[Unit], factory: str) -> None:
    """Raise if all convs with branches were left out because they cannot be replaced."""
    if not any(unit.rc for unit in after):
        name = next(unit.conv for unit in before if unit.rc)
        raise ConfigError(
            f"{factory} has no conv that can get a second branch: the code around '{name}' reads its weights or type",
            "Branches take the place of convs. Read what the code needs, such as a dtype, from a tensor.",
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


def _multiple(net: nn.Module, side: int) -> int:
    """The number that height and width must be a multiple of."""
    for multiple in MULTIPLES:
        far = -(-FAR // multiple) * multiple
        if side % multiple == 0 and all(
            _runs(net, side + more, side + wide) for more, wide in ((multiple, 3 * multiple), (far, 2 * far))
        ):
            return multiple
    if _runs(net, side + FAR, side + FAR):
        raise ConfigError("the network accepts square images only", "Networks for squares cannot be trained on crops.")
    raise ConfigError(
        f"the network accepts images of {side} x {side} pixels only",
        "Networks for one size cannot be trained on crops.",
    )


@torch.no_grad()
def _runs(net: nn.Module, height: int, width: int) -> bool:
    """Whether a network accepts images of this size."""
    try:
        net(_image(height, width))
    except Exception:  # any code may run inside
        return False
    return True
