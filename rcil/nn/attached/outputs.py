"""Where a watched network gives its logits, and which convs make them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import fields, is_dataclass
from typing import Any

from torch import Tensor, nn
from torch.nn.utils import parametrize

from rcil.core.errors import ConfigError
from rcil.nn.attached.dataflow import Call, Flow

PREFERRED = ("out", "logits")
"""Keys of the logits in dictionaries, of torchvision and transformers."""
LINEAR = frozenset(
    (
        *("upsample_bilinear2d", "upsample_nearest2d", "upsample_bicubic2d", "_upsample_bilinear2d_aa"),
        *("_upsample_bicubic2d_aa", "_upsample_nearest_exact2d", "constant_pad_nd", "slice"),
        *("add", "add_", "clone", "contiguous", "_to_copy", "alias", "detach", "native_dropout", "empty"),
    )
)
"""Operations between the classifier and the logits through which class rows stay class rows."""
SCALING = frozenset(("mul", "mul_", "div", "div_"))
"""The same, if the other operand is a number."""
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


def find_logits(flow: Flow, classes: int) -> tuple[str | int | None, Tensor]:
    """The logits and their key: the first map with as many channels as there are classes."""
    for key, value in outputs_of(flow.output):
        if value.shape[1] == classes:
            return key, value
    raise ConfigError(
        f"the network gives {shown(flow.output)} for one image, and {classes} classes are named",
        "Name as many classes as the network has output channels, background first.",
    )


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
            scaled = operation.name in SCALING and len(operation.inputs) == 1
            if operation.name not in LINEAR and not scaled:
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
    elif type(conv) is not nn.Conv2d:
        reason = f"it is a {type(conv).__name__}"
    elif sum(other.module is conv for other in flow.calls) > 1:
        reason = "it runs several times"
    elif parametrize.is_parametrized(conv) or conv._forward_hooks or conv._forward_pre_hooks:
        reason = "it is changed by hooks or parametrisations"
    if reason is not None:
        raise ConfigError(
            f"'{call.name}' cannot be the classifier: {reason}", "Name the conv with one row per class: classifier=..."
        )


def _not_linear(flow: Flow, index: int) -> ConfigError:
    while flow.operations[index].name in REARRANGING:
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
    made = {"convolution": "a conv that is no nn.Conv2d", "addmm": "a linear layer", "mm": "a linear layer"}
    linear = any(isinstance(call.module, nn.Linear) for call in flow.calls if call.name == owner)
    what = "a linear layer" if linear else made.get(name, f"the operation {name}")
    return ConfigError(
        f"the logits come from {what} in the {where}, and rows can only be added to an nn.Conv2d",
        "Name the conv with one row per class with classifier=..., or end the network in a 1x1 conv.",
    )
