"""Where a watched network gives its logits, and which convs make them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import fields, is_dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.utils import parametrize

from rcil.core.errors import ConfigError
from rcil.nn.attached.dataflow import Call, Flow

PREFERRED = ("out", "logits", "seg", "segmentation", "semantic", "sem_seg")
"""Usual keys of the logits in dictionaries; torchvision has the first, transformers the second."""
LINEAR = frozenset(
    (
        *("upsample_bilinear2d", "upsample_nearest2d", "upsample_bicubic2d", "_upsample_bilinear2d_aa"),
        *("_upsample_bicubic2d_aa", "_upsample_nearest_exact2d", "constant_pad_nd", "slice"),
        *("add", "add_", "sub", "sub_", "clone", "contiguous", "_to_copy", "alias", "detach"),
        *("native_dropout", "empty"),
    )
)
"""Operations between the classifier and the logits through which class rows stay class rows."""
SCALING = frozenset(("mul", "mul_", "div", "div_", "neg", "rsub"))
"""The same, if the other operand is a fixed number."""
REARRANGING = frozenset(("permute", "transpose", "t", "view", "_unsafe_view", "reshape", "unsqueeze", "squeeze"))
OVER_CLASSES = {"_softmax": "softmax", "_log_softmax": "log_softmax", "sigmoid": "sigmoid", "argmax": "argmax"}


def outputs_of(result: Any) -> Iterator[tuple[str | int | None, Tensor]]:
    """The maps in the output of a network, each with its key: the output itself, or entries of a dict or tuple."""
    if isinstance(result, Tensor):
        entries: Any = [(None, result)]
    elif isinstance(result, Mapping):
        entries = sorted(result.items(), key=lambda entry: entry[0] not in PREFERRED)
    elif isinstance(result, list | tuple):
        names = getattr(result, "_fields", ())  # of a named tuple
        preferred = {names.index(name) for name in PREFERRED if name in names}
        entries = sorted(enumerate(result), key=lambda entry: entry[0] not in preferred)
    elif is_dataclass(result):
        found = ((field.name, getattr(result, field.name)) for field in fields(result))
        entries = sorted(found, key=lambda entry: entry[0] not in PREFERRED)
    else:
        entries = ()
    return ((key, value) for key, value in entries if isinstance(value, Tensor) and value.ndim == 4)


def pick(result: Any, key: str | int | None, rows: int) -> Tensor:
    """The logits in the output of a network, the first map with one channel per class.

    Some networks return more in training than in evaluation, and then in another form.

    Args:
        result: The output.
        key: Where the logits are in evaluation mode.
        rows: Number of classes.
    """
    maps = list(outputs_of(result))
    found = [value for name, value in maps if name == key] or [value for _, value in maps]
    for value in found:
        if value.shape[1] == rows:
            return value
    raise ConfigError(
        f"the network returns no map with {rows} channels but {shown(result)}",
        "A network must return its logits in training too.",
    )


def shown(result: Any) -> str:
    """The output of a network in words."""
    if isinstance(result, Tensor):
        return f"{list(result.shape)}"
    return ", ".join(f"{list(value.shape)}" for _, value in outputs_of(result)) or f"a {type(result).__name__}"


def find_logits(flow: Flow, classes: int, classifier: Sequence[str] = ()) -> tuple[str | int | None, Tensor]:
    """The logits and their key: a map with as many channels as there are classes.

    Of several maps, the one with a usual key is taken, or else the one that depends on the most operations, because
    auxiliary heads leave out a part of the network; of equal ones the first.

    Args:
        flow: One pass of the network.
        classes: Number of classes.
        classifier: Names of the convs that make the logits, if they are known.
    """
    maps = [(key, value) for key, value in outputs_of(flow.output) if value.shape[1] == classes]
    if not maps:
        raise ConfigError(
            f"the network gives {shown(flow.output)} for one image, and {classes} classes are named",
            "Name as many classes as the network has output channels, background first.",
        )
    if classifier:
        rows = {index for call in flow.calls if call.name in classifier for index in flow.makers[id(call.output)]}
        maps = [(key, value) for key, value in maps if rows & flow.history(value)]
        if not maps:
            raise ConfigError(
                f"no map with {classes} channels in the output comes from '{', '.join(classifier)}'",
                "Name the conv that makes the logits.",
            )
    usual = [entry for entry in maps if entry[0] in PREFERRED]
    return usual[0] if usual else max(maps, key=lambda entry: len(flow.history(entry[1])))


def class_channels(flow: Flow) -> int:
    """How many classes the network seems to have: the channels of its logits, above 1 if possible.

    Raises:
        ConfigError: It returns no map.
    """
    counts = [value.shape[1] for _, value in outputs_of(flow.output)]
    usual = [value.shape[1] for key, value in outputs_of(flow.output) if key in PREFERRED]
    if not counts:
        raise ConfigError(
            f"the network returns {shown(flow.output)}, and no map [N, classes, H, W]",
            "It must return its logits, as a tensor or in a dictionary, tuple or dataclass that is not nested.",
        )
    return next((count for count in (*usual, *counts) if count > 1), 1)


def find_classifier(flow: Flow, logits: Tensor, classes: int) -> tuple[str, ...]:
    """Names of the convs whose outputs become the logits; several if they are added.

    Raises:
        ConfigError: The logits come from something else, which is named.
    """
    made = {id(call.output): call for call in flow.calls_of(nn.Conv2d)}
    found: dict[str, Call] = {}
    pending, seen = [logits], set()
    while pending:
        tensor = pending.pop()
        if id(tensor) in seen:
            continue
        seen.add(id(tensor))
        if id(tensor) in made:
            found[made[id(tensor)].name] = made[id(tensor)]
            continue
        if not flow.makers[id(tensor)]:
            raise ConfigError("the logits do not come from a conv", "Networks end in a conv with one row per class.")
        for index in flow.makers[id(tensor)]:
            operation = flow.operations[index]
            factors = [value for value in operation.inputs if value.numel() > 1 or isinstance(value, nn.Parameter)]
            if operation.name not in LINEAR and not (operation.name in SCALING and len(factors) == 1):
                raise _not_linear(flow, index)
            pending += [source for source in operation.inputs if source.ndim == 4]
    for call in found.values():
        check_classifier(call, flow, classes)
    return tuple(sorted(found, key=lambda name: found[name].first))


def check_classifier(call: Call, flow: Flow, classes: int) -> None:
    """Raise unless a conv can be the classifier."""
    conv = call.module
    assert isinstance(conv, nn.Conv2d)
    reason = None
    if conv.out_channels != classes:
        reason = f"it has {conv.out_channels} rows and not {classes}"
    elif conv.groups != 1:
        reason = f"it has {conv.groups} groups"
    elif parametrize.is_parametrized(conv) or conv._forward_hooks or conv._forward_pre_hooks:
        reason = "it is changed by hooks or parametrisations"
    elif not _is_plain(call):
        reason = f"it is a {type(conv).__module__}.{type(conv).__name__}, which does more than nn.Conv2d"
    elif sum(other.module is conv for other in flow.calls) > 1:
        reason = "it runs several times"
    if reason is not None:
        raise ConfigError(
            f"'{call.name}' cannot be the classifier: {reason}", "Name the conv with one row per class: classifier=..."
        )


@torch.no_grad()
def _is_plain(call: Call) -> bool:
    """Whether a conv, which may be of a subclass, computes what `nn.Conv2d` computes."""
    conv = call.module
    assert isinstance(conv, nn.Conv2d)
    if type(conv) is nn.Conv2d:
        return True
    if len(call.inputs) != 1 or call.output is None or next(conv.children(), None) is not None:
        return False
    x = call.inputs[0]
    return torch.equal(nn.Conv2d.forward(conv, x), conv(x))


def _not_linear(flow: Flow, index: int) -> ConfigError:
    made_by = {id(call.output): call.name for call in flow.calls_of(nn.Conv2d)}
    rearranged = flow.operations[index].name
    while flow.operations[index].name in REARRANGING:
        conv = next((made_by[id(source)] for source in flow.operations[index].inputs if id(source) in made_by), None)
        if conv is not None:
            return ConfigError(
                f"the output of the conv '{conv}' is rearranged by {rearranged} before it is returned",
                "The network must return [N, classes, H, W] with one channel per row of its last conv.",
            )
        sources = [made for source in flow.operations[index].inputs for made in flow.makers[id(source)]]
        if not sources:
            break
        index = sources[-1]
    name, owner = flow.operations[index].name, flow.owner(index)
    where = f"module '{owner}'" if owner else "forward function"
    if name in OVER_CLASSES:
        return ConfigError(
            f"the network does not return logits: its {where} applies {OVER_CLASSES[name]}",
            "Build it without its last activation.",
        )
    transposed = any(isinstance(call.module, nn.ConvTranspose2d) for call in flow.calls if call.name == owner)
    conv = "a transposed conv" if transposed else "a conv that is no nn.Conv2d"
    made = {"convolution": conv, "addmm": "a linear layer", "mm": "a linear layer"}
    linear = any(isinstance(call.module, nn.Linear) for call in flow.calls if call.name == owner)
    what = "a linear layer" if linear else made.get(name, f"the operation {name}")
    return ConfigError(
        f"the logits come from {what} in the {where}, and rows can only be added to an nn.Conv2d",
        "Name the conv with one row per class with classifier=..., or end the network in a 1x1 conv.",
    )
