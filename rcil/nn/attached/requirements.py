"""What a network of another library must be able to do: be copied, run with units in place of its convs, and train."""

from __future__ import annotations

import copy
import inspect
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn

from rcil.core.errors import ConfigError, first_line
from rcil.nn.attached.builders import build_module
from rcil.nn.attached.network import AttachedNetwork
from rcil.nn.attached.outputs import pick
from rcil.nn.fold import duplicate

TOLERANCE = 1e-6
"""Largest change of a logit, as a share of their range."""


def copied(net: nn.Module) -> nn.Module:
    """A copy on the CPU, in fp32 and evaluation mode; raises for networks of which no independent copy can be made."""
    for name, module in net.named_modules():
        for hook in (*module._forward_hooks.values(), *module._forward_pre_hooks.values()):
            if inspect.isfunction(hook) and hook.__closure__:
                raise ConfigError(
                    f"the module '{name}' has a hook with variables that copies of the network would share",
                    "Store what the hook needs in a module, and register a method of that module.",
                )
    try:
        return copy.deepcopy(net).cpu().float().eval()
    except Exception as error:
        raise _not_copied(net, error) from error


def _not_copied(net: nn.Module, error: Exception) -> ConfigError:
    """Names the smallest module that cannot be copied."""
    where = ""
    for name, module in net.named_modules():
        try:
            copy.deepcopy(module)
        except Exception:
            where = name  # the children of a module come after it
    return ConfigError(
        f"the module '{where}' cannot be copied after a pass: {type(error).__name__}: {first_line(error)}",
        "Modules must not keep tensors of a pass. Use parametrizations.weight_norm, not torch.nn.utils.weight_norm.",
    )


def check_buffers(net: nn.Module, factory: str, args: Mapping[str, Any]) -> None:
    """Raise for buffers that are neither stored in the state dict nor the same whenever the network is built."""
    stored = net.state_dict()
    hidden = {name: buffer for name, buffer in net.named_buffers() if name not in stored}
    if not hidden:
        return
    again = dict(build_module(factory, args).cpu().float().named_buffers())
    for name, buffer in hidden.items():
        if name not in again or not torch.equal(buffer, again[name]):
            raise ConfigError(
                f"the buffer '{name}' is not in the state dict and differs whenever the network is built",
                "Make it persistent, or let the builder fill it with fixed values.",
            )


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


@torch.no_grad()
def check_function(net: nn.Module, network: AttachedNetwork, image: Tensor) -> None:
    """Raise unless the rewritten network computes what the original computes."""
    small = pick(net(image.clone()), network.arch.output, len(network.names))
    expected = network._full(small, image)
    if not torch.isfinite(expected).all():
        raise ConfigError("the logits of the network are not finite", "Check its weights, and its builder.")
    found = network(image.clone(), maps="before")
    change = float((found.logits - expected).abs().max() / (expected.max() - expected.min()).clamp(min=1e-12))
    if not change <= TOLERANCE:
        raise ConfigError(
            f"attaching would change the logits by {change:.1e} of their range",
            "The network may be random in evaluation mode, or change its own weights.",
        )


def check_training(network: AttachedNetwork, image: Tensor) -> None:
    """Raise unless the network can be trained, its maps can be distilled, and it can be copied afterwards."""
    probe = duplicate(network, {}).train()
    try:
        with torch.enable_grad():
            maps = probe(torch.cat((image, image.flip(-1))), maps="before")
    except ConfigError as error:
        raise ConfigError(error.message, "It must return logits for images alone in training mode too.") from error
    for index, (name, value) in enumerate(zip(network.arch.maps, maps.stages, strict=True)):
        below = (parameter for part in probe.early(index + 1) for parameter in part.parameters())
        if not value.requires_grad and any(parameter.requires_grad for parameter in below):
            raise ConfigError(
                f"no gradient passes through the map of '{name}'",
                "Use torch.utils.checkpoint with use_reentrant=False, or name other modules with maps=...",
            )
    try:
        with torch.enable_grad():
            maps.logits.square().mean().backward()
    except RuntimeError as error:
        raise ConfigError(
            f"no gradient can be computed in training mode: {first_line(error)}",
            "A tensor that the backward pass needs must not be changed in place.",
        ) from error
    try:
        duplicate(probe, {})
    except Exception as error:
        raise _not_copied(probe.module, error) from error


@torch.no_grad()
def check_growth(network: AttachedNetwork, image: Tensor) -> None:
    """Raise unless the network still runs with one class more: nothing in it may read one channel per class."""
    probe = duplicate(network, {})
    probe.grow([f"{max(network.names, key=len)}_"], "background")
    begun: list[str] = []

    def end(module: nn.Module, inputs: Any, output: Any) -> None:
        begun.pop()

    for name, module in probe.module.named_modules():
        module.register_forward_pre_hook(lambda module, inputs, name=name: begun.append(name))
        module.register_forward_hook(end)
    try:
        probe(image.clone())
    except ConfigError as error:
        inner = begun[-1] if begun else ""
        name = next((rows for rows in network.arch.classifier if inner.startswith(f"{rows}.")), inner)
        where = f"module '{name}'" if name else "forward function"
        raise ConfigError(
            f"with one class more, the {where} fails: {first_line(error.__cause__ or error)}",
            "It reads or makes one channel per class, and only the classifier can grow. Build the network without it.",
        ) from error
