"""Which convs of a network can be replaced by units: the code around them may look at more than their outputs."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from rcil.core.errors import ConfigError
from rcil.model.architecture import RC
from rcil.model.attached import AttachedArchitecture, Unit
from rcil.nn.attached.network import AttachedNetwork
from rcil.nn.attached.outputs import pick
from rcil.nn.attached.requirements import TOLERANCE, relative_change

BRANCH_TOLERANCE = 1e-4
"""The same with branches, whose mixing is rounded."""


@torch.no_grad()
def fitting_units(net: nn.Module, arch: AttachedArchitecture, names: Sequence[str], image: Tensor) -> tuple[Unit, ...]:
    """The units with which the network computes the same, as they are and with two branches.

    Left out are convs whose weights or types the code around them reads, which replacing them would change.
    """
    expected = pick(net(image.clone()), arch.output, len(names))
    if _fits(net, arch, names, image, expected) or not _fits(net, arch.replace(units=()), names, image, expected):
        return arch.units  # `idle_units` and `check_function` say why it fails without units
    return tuple(unit for unit in arch.units if _fits(net, arch.replace(units=(unit,)), names, image, expected))


def _fits(net: nn.Module, arch: AttachedArchitecture, names: Sequence[str], image: Tensor, expected: Tensor) -> bool:
    """Whether the network with these units computes what it computed, both before and after they get branches."""
    network = AttachedNetwork(copy.deepcopy(net), arch, [names]).eval()
    expected = network._full(expected, image)
    try:
        return (
            relative_change(expected, network(image.clone())) <= TOLERANCE
            and relative_change(expected, network.branched(RC())(image.clone())) <= BRANCH_TOLERANCE
        )
    except ConfigError:
        return False


@torch.no_grad()
def idle_units(network: AttachedNetwork, image: Tensor) -> set[str]:
    """Names of the convs whose units the network does not run, because it keeps its layers in a list, for example.

    Raises:
        ConfigError: It does not run at all, or not through its classifier.
    """
    arch, ran = network.arch, set()

    def mark(name: str) -> Any:
        return lambda module, inputs: ran.add(name)

    parts = {*arch.classifier, *(name for unit in arch.units for name in (unit.conv, unit.norm) if name is not None)}
    hooks = [network.module.get_submodule(name).register_forward_pre_hook(mark(name)) for name in parts]
    try:
        network(image.clone())
    except ConfigError as error:
        raise ConfigError(
            f"with units in place of its convs, {error.message}",
            "A module of it reads more of its convs than their outputs.",
        ) from error
    finally:
        for hook in hooks:
            hook.remove()
    for name in arch.classifier:
        if name not in ran:
            raise ConfigError(
                f"the classifier '{name}' does not run as a part of its module, so it cannot be replaced",
                "Keep layers in attributes or nn.ModuleList, not in lists of Python.",
            )
    return {unit.conv for unit in arch.units if not {unit.conv, unit.norm or unit.conv} <= ran}
