"""What a network of another library must be able to do: be copied, run with units in place of its convs, and train."""

from __future__ import annotations

import copy
import inspect
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from rcil.core.errors import ConfigError, first_line
from rcil.nn.attached.builders import build_module
from rcil.nn.attached.dataflow import Flow
from rcil.nn.attached.network import AttachedNetwork, MissingMapError
from rcil.nn.attached.outputs import outputs_of, pick, shown
from rcil.nn.fold import duplicate

TOLERANCE = 1e-6
"""Largest change of a logit, as a share of their range."""
GROWTH = 0.1
"""The same, when a class is added."""


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
        f"the module '{where}' cannot be copied: {type(error).__name__}: {first_line(error)}",
        "Modules must not keep tensors of a pass, locks or open files. Use torch.nn.utils.parametrizations instead of "
        "weight_norm and spectral_norm of torch.nn.utils.",
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


def check_parameters(flow: Flow, net: nn.Module) -> None:
    """Raise for parameters that a pass reads although they are in no module of the network.

    They are not trained, not stored and not moved to another device: those of modules in lists of Python, and those
    that functions refer to with variables of their own, which are the parameters of another copy.
    """
    own = {id(parameter) for parameter in net.parameters()}
    for index, operation in enumerate(flow.operations):
        for value in operation.inputs:
            if isinstance(value, nn.Parameter) and id(value) not in own and not flow.makers[id(value)]:
                owner = flow.owner(index)
                where = f"module '{owner}'" if owner else "forward function"
                raise ConfigError(
                    f"the {where} reads a parameter {list(value.shape)} that is in no module of the network",
                    "Keep layers in attributes or nn.ModuleList, and functions without references to layers.",
                )


@torch.no_grad()
def check_rebuilt(net: nn.Module, image: Tensor, factory: str, args: Mapping[str, Any]) -> None:
    """Raise unless the builder and the state dict give the same network again, as every checkpoint relies on."""
    again = build_module(factory, args).cpu().float()
    try:
        again.load_state_dict(net.state_dict())
    except RuntimeError as error:
        raise ConfigError(
            f"the state dict of the network does not load into what {factory} builds: {first_line(error)}",
            "Name the arguments that the network was built with.",
        ) from error
    for (_, first), (_, second) in zip(outputs_of(net(image.clone())), outputs_of(again(image.clone())), strict=True):
        if not torch.allclose(first, second, rtol=1e-4, atol=1e-4, equal_nan=True):
            raise ConfigError(
                f"{factory} does not build the same network again: with the same state dict its output is another",
                "Store what is random in parameters or buffers. A network that is random in evaluation mode cannot be "
                "attached.",
            )


def check_finite(logits: Tensor) -> None:
    """Raise for logits that are infinite or no numbers."""
    if not torch.isfinite(logits).all():
        raise ConfigError("the logits of the network are not finite", "Check its weights, and its builder.")


@torch.no_grad()
def check_function(net: nn.Module, network: AttachedNetwork, image: Tensor) -> None:
    """Raise unless the rewritten network computes what the original computes."""
    small = pick(net(image.clone()), network.arch.output, len(network.names))
    expected = network._full(small, image)
    found = network(image.clone(), maps="before")
    change = relative_change(expected, found.logits)
    if not change <= TOLERANCE:
        raise ConfigError(
            f"attaching would change the logits by {change:.1e} of their range",
            "The network may be random in evaluation mode, or change its own weights.",
        )


def relative_change(expected: Tensor, found: Tensor) -> float:
    """The largest change of a logit, as a share of their range."""
    return float((found - expected).abs().max() / (expected.max() - expected.min()).clamp(min=1e-12))


def training_output(network: AttachedNetwork, image: Tensor) -> str | int | None:
    """Key of the map that the classifier makes in training mode; None if it is the one of evaluation mode.

    Some networks return a map in evaluation mode, and in training a list in which those of auxiliary heads come first.
    """
    probe = duplicate(network, {}).train()
    with torch.enable_grad():
        try:
            result = probe.module(torch.cat((image, image.flip(-1))))
            chosen = pick(result, network.arch.output, len(network.names))
        except Exception:  # `check_training` says why
            return None
        rows = [conv.weight for part in probe.rows.parts for conv in part.modules() if isinstance(conv, nn.Conv2d)]
        if _depends_on(chosen, rows):
            return None
        for key, value in outputs_of(result):
            if value.shape[1] == len(network.names) and key is not None and _depends_on(value, rows):
                return key
    raise ConfigError(
        f"in training mode, none of the returned {shown(result)} comes from the classifier "
        f"'{', '.join(network.arch.classifier)}'",
        "The network must return its logits in training too.",
    )


def _depends_on(value: Tensor, weights: Sequence[Tensor]) -> bool:
    if not value.requires_grad:
        return True  # nothing is known; `check_training` names the reason
    found = torch.autograd.grad(value.sum(), list(weights), allow_unused=True, retain_graph=True)
    return all(gradient is not None for gradient in found)


def check_training(network: AttachedNetwork, image: Tensor) -> None:
    """Raise unless the network can be trained, its maps can be distilled, and it can be copied afterwards."""
    probe = duplicate(network, {}).train()
    try:
        with torch.enable_grad():
            maps = probe(torch.cat((image, image.flip(-1))), maps="before")
    except MissingMapError:
        raise
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
    """Raise unless the network still runs with one class more, and gives similar logits for the others.

    Nothing in it may read one channel per class. Networks whose context comes from auxiliary logits per class, as in
    OCR, may change a little.
    """
    expected = network(image.clone())
    probe = duplicate(network, {})
    probe.grow([f"{max(network.names, key=len)}_"], "background")
    begun: list[str] = []

    def end(module: nn.Module, inputs: Any, output: Any) -> None:
        begun.pop()

    for name, module in probe.module.named_modules():
        module.register_forward_pre_hook(lambda module, inputs, name=name: begun.append(name))
        module.register_forward_hook(end)
    try:
        grown = probe(image.clone())
    except ConfigError as error:
        inner = begun[-1] if begun else ""
        name = next((rows for rows in network.arch.classifier if inner.startswith(f"{rows}.")), inner)
        where = f"module '{name}'" if name else "forward function"
        raise ConfigError(
            f"with one class more, the {where} fails: {first_line(error.__cause__ or error)}",
            "It reads or makes one channel per class, and only the classifier can grow. Build the network without it.",
        ) from error
    change = relative_change(expected, grown[:, : len(network.names)])
    if not change <= GROWTH:
        raise ConfigError(
            f"with one class more, the logits of the others change by {change:.1%} of their range",
            "A layer mixes the channels of classes, such as a softmax over them. Build the network without it.",
        )
