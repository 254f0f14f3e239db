"""The ends of the stages of a watched network, whose maps are distilled."""

from __future__ import annotations

from collections.abc import Sequence

from torch import nn

from rcil.nn.attached.dataflow import Call, Flow

MAX_STAGES = 4
MAX_HALVINGS = 5
"""Maps at a stride of up to 2**5 count; smaller ones are pooled context."""


def find_stages(flow: Flow, end: int) -> list[Call]:
    """Calls whose outputs are the last maps of up to four stages, in the order of execution.

    A stage is a run of blocks with one stride and one number of channels. Blocks are the largest modules that halve
    the resolution at most once; in a network without such modules, single layers. The encoder ends with the widest map
    of the largest stride; of equal blocks side by side in one module, the last counts. If there are more than four
    stages, the last one of every stride counts.

    Args:
        flow: One pass of the network.
        end: Index of the first operation of the classifier; modules that end later do not count.
    """
    inside = [call for call in flow.calls if call.end <= end and _halvings(call, flow)]
    if not inside:
        return []
    encoder = _encoder(_outermost([call for call in inside if _is_layer(call) or _spans_one(call, flow)]), flow)
    blocks = [call for call in encoder if not _is_layer(call)] or encoder
    groups: dict[tuple[int, int], Call] = {}
    for call in blocks:
        groups[_halvings(call, flow), _width(call)] = call
    found = sorted(groups.values(), key=lambda call: call.end)
    if len(found) > MAX_STAGES:
        found = sorted({_halvings(call, flow): call for call in found}.values(), key=lambda call: call.end)
    return found[-MAX_STAGES:]


def _encoder(blocks: Sequence[Call], flow: Flow) -> list[Call]:
    """The blocks up to the end of the encoder, in the order of execution."""
    ordered = sorted(blocks, key=lambda call: call.end)
    deepest = max(_halvings(call, flow) for call in ordered)
    widths = [_width(call) if _halvings(call, flow) == deepest else 0 for call in ordered]
    last = widths.index(max(widths))
    parent = ordered[last].name.rpartition(".")[0]
    while last + 1 < len(ordered) and widths[last + 1] == max(widths):
        if ordered[last + 1].name.rpartition(".")[0] != parent:
            break
        last += 1
    return ordered[: last + 1]


def _is_layer(call: Call) -> bool:
    return next(call.module.children(), None) is None


def _width(call: Call) -> int:
    assert call.output is not None
    return call.output.shape[1]


def _halvings(call: Call, flow: Flow) -> int:
    """How often the image was halved on the way to the output of a call; 0 if it is no map at all."""
    if call.output is None or call.output.ndim != 4 or not call.output.is_floating_point():
        return 0
    side = call.output.shape[-1]
    for count in range(1, MAX_HALVINGS + 1):
        if side == -(-flow.image.shape[-1] // 2**count) and call.output.shape[-2] == side:
            return count
    return 0


def _spans_one(call: Call, flow: Flow) -> bool:
    """Whether a module halves the resolution at most once."""
    maps = [value for value in call.inputs if value.ndim == 4]
    assert call.output is not None
    return bool(maps) and maps[0].shape[-1] <= 2 * call.output.shape[-1] + 1


def _outermost(calls: Sequence[Call]) -> list[Call]:
    names = {call.name for call in calls}

    def inner(name: str) -> bool:
        parts = name.split(".")
        return any(".".join(parts[:length]) in names for length in range(1, len(parts)))

    return [call for call in calls if not inner(call.name)]


def modules_until(flow: Flow, net: nn.Module, ends: Sequence[Call]) -> tuple[tuple[str, ...], ...]:
    """For every stage, the outermost modules with parameters that run after the stage before and within this one."""
    leaves = [call for call in flow.calls if next(call.module.parameters(recurse=False), None) is not None]
    before: set[str] = set()
    found = []
    for stage in ends:
        done = {call.name for call in leaves if call.end <= stage.end}
        found.append(_joined(done - before, net))
        before |= done
    return tuple(found)


def _joined(leaves: set[str], net: nn.Module) -> tuple[str, ...]:
    """The outermost modules all of whose parameters belong to `leaves`, so that few names say it."""
    found: list[str] = []

    def walk(name: str, module: nn.Module) -> None:
        own = [
            f"{name}.{key}".strip(".")
            for key, part in module.named_modules()
            if next(part.parameters(recurse=False), None) is not None
        ]
        if own and all(key in leaves for key in own) and name:
            found.append(name)
            return
        for key, child in module.named_children():
            walk(f"{name}.{key}".strip("."), child)

    walk("", net)
    return tuple(found)
