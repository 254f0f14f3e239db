"""One pass of a network, watched: which module made which tensor, and which operations read it.

Watching sees every operation below the modules, so that any Python code can be inside a network: control flow, loops
and functions that a symbolic trace cannot follow.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves


@dataclass(frozen=True)
class Operation:
    """One operation of torch."""

    name: str
    """Such as `convolution`."""
    inputs: tuple[Tensor, ...]
    outputs: tuple[Tensor, ...]


@dataclass(frozen=True)
class Call:
    """One call of a module."""

    name: str
    module: nn.Module
    inputs: tuple[Tensor, ...]
    output: Tensor | None
    """None if the module returns something else than one tensor."""
    first: int
    """Index of the first operation inside."""
    end: int
    """Index after the last operation inside."""


@dataclass
class Flow:
    """What happened in one pass."""

    image: Tensor
    output: Any = None
    operations: list[Operation] = field(default_factory=list)
    calls: list[Call] = field(default_factory=list)
    """In the order in which they ended."""

    def __post_init__(self) -> None:
        self.readers: dict[int, list[int]] = defaultdict(list)
        """Indices of the operations that read a tensor, by its id."""
        self.makers: dict[int, list[int]] = defaultdict(list)
        """Indices of the operations that made or changed a tensor, by its id."""

    def add(self, operation: Operation) -> None:
        """Note an operation; it is kept, so that ids stay unique."""
        index = len(self.operations)
        self.operations.append(operation)
        for tensor in {id(t): t for t in operation.inputs}.values():
            self.readers[id(tensor)].append(index)
        for tensor in operation.outputs:
            self.makers[id(tensor)].append(index)

    def calls_of(self, kind: type[nn.Module]) -> Iterator[Call]:
        """Calls of modules of a type."""
        return (call for call in self.calls if isinstance(call.module, kind))

    def is_read_only_by(self, tensor: Tensor, call: Call) -> bool:
        """Whether all operations that read or change `tensor` after it was made are inside `call`."""
        return all(call.first <= index < call.end for index in self.readers[id(tensor)])

    def history(self, tensor: Tensor) -> set[int]:
        """Indices of all operations that `tensor` depends on."""
        found: set[int] = set()
        pending = [tensor]
        while pending:
            for index in self.makers[id(pending.pop())]:
                if index not in found:
                    found.add(index)
                    pending += self.operations[index].inputs
        return found

    def owner(self, index: int) -> str:
        """Name of the innermost module that ran an operation."""
        inside = [call for call in self.calls if call.first <= index < call.end]
        return min(inside, key=lambda call: call.end - call.first).name if inside else ""


class _Watch(TorchDispatchMode):  # type: ignore[no-untyped-call]
    def __init__(self, flow: Flow) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.flow = flow

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        inputs, outputs = (tuple(_tensors(values)) for values in ((args, kwargs), result))
        self.flow.add(Operation(func.overloadpacket.__name__, inputs, outputs))
        return result


def _tensors(values: Any) -> Iterator[Tensor]:
    return (leaf for leaf in tree_leaves(values) if isinstance(leaf, Tensor))


@torch.no_grad()
def watch(net: nn.Module, image: Tensor) -> Flow:
    """Run the network in evaluation mode on images [N, 3, H, W] and note what happens."""
    flow = Flow(image)
    begun: list[int] = []
    hooks = []
    for name, module in net.named_modules():
        hooks.append(module.register_forward_pre_hook(lambda *_: begun.append(len(flow.operations))))

        def ended(part: nn.Module, inputs: Any, output: Any, name: str = name) -> None:
            made = output if isinstance(output, Tensor) else None
            first, end = begun.pop(), len(flow.operations)
            flow.calls.append(Call(name, part, tuple(_tensors(inputs)), made, first, end))

        hooks.append(module.register_forward_hook(ended))
    try:
        with _Watch(flow):
            flow.output = net.eval()(image)
    finally:
        for hook in hooks:
            hook.remove()
    return flow
