"""fp32 graph -> fp16 or bf16 graph, with nodes left in fp32 where measured numbers show a risk."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper

from rcil.core.errors import ConfigError
from rcil_export.graph.nodes import constants_of, replace_nodes, set_inputs, without_constants
from rcil_export.precision.compare import agreement, rows_of
from rcil_export.precision.feeds import Feed
from rcil_export.precision.ranges import Ranges, float_values
from rcil_export.precision.record import finish, fp32_interface

HalfKind = Literal["fp16", "bf16"]
GOAL = 0.999
"""Share of pixels that must get the class of the fp32 graph."""
SAFETY = 4.0
"""Values of other images may be so many times larger than the largest measured one before fp16 overflows."""
LARGEST_FP16 = 65504.0
KERNEL_ERROR = 2.0**-9
"""Rounding to fp16 changes a kernel by at most 2^-11 of its norm, unless many weights are subnormal; four times that
is harmful."""
NEGLIGIBLE = 1e-2
"""The norm of a channel's kernel counts as at least this share of the largest one of the layer."""
_ELEMENT = {"fp16": TensorProto.FLOAT16, "bf16": TensorProto.BFLOAT16}
_TYPE_NAME = {"fp16": "tensor(float16)", "bf16": "tensor(bfloat16)"}


def to_half(
    document: onnx.ModelProto, kind: HalfKind, ranges: Ranges | None, keep: Mapping[str, str] | None = None
) -> tuple[onnx.ModelProto, dict[str, str]]:
    """Weights and values in fp16 or bf16; inputs and outputs of the graph keep their types.

    A node stays in fp32 if a value it reads or writes, or what it adds up, could leave the range of fp16 (`SAFETY`), if
    its weights suffer from rounding (`KERNEL_ERROR`), if it normalises pixels, if the caller says so, or if that saves
    casts. bf16 has the range of fp32, so only the last three apply.

    Args:
        document: An exported graph in fp32; it is not changed.
        kind: The short format.
        ranges: Measured on the user's images with `measure_ranges`; bf16 needs none.
        keep: Further nodes to leave in fp32, with the reason.
    """
    kinds = float_values(document)
    nodes = [node for node in document.graph.node if _touches(node, kinds)]
    stem = next(index for index, node in enumerate(nodes) if node.op_type == "Conv")
    reasons = {node.name: "pixel normalisation" for node in nodes[:stem]}
    if kind == "fp16":
        assert ranges is not None, "fp16 can overflow"
        reasons |= _risky(nodes, kinds, ranges, constants_of(document))
    reasons |= {name: reason for name, reason in (keep or {}).items() if name in {node.name for node in nodes}}
    reasons |= _saves_casts(nodes, kinds, reasons)
    return to_half_keeping(document, kind, reasons)


def to_half_keeping(
    document: onnx.ModelProto, kind: HalfKind, reasons: Mapping[str, str]
) -> tuple[onnx.ModelProto, dict[str, str]]:
    """Like `to_half`, with exactly these nodes in fp32 and without any measurement.

    Args:
        document: An exported graph in fp32; it is not changed.
        kind: The short format.
        reasons: Nodes to leave in fp32, with the reason.
    """
    interface = fp32_interface(document, kind)
    kinds = float_values(document)
    nodes = [node for node in document.graph.node if _touches(node, kinds)]
    for op_type in dict.fromkeys(node.op_type for node in nodes):
        check_op(op_type, kind, interface.opset)
    half_nodes = {node.name for node in nodes} - set(reasons)
    converted = finish(_Rewriter(document, kind, kinds, half_nodes).run(), kind)
    return converted, {node.name: reasons[node.name] for node in nodes if node.name in reasons}


def _touches(node: onnx.NodeProto, kinds: dict[str, int]) -> bool:
    return any(name in kinds for name in [*node.input, *node.output])


def check_op(op_type: str, kind: HalfKind, opset: int) -> None:
    """Raise unless ONNX allows the format for an operator: convs and poolings take bf16 from opset 22 on."""
    schema = onnx.defs.get_schema(op_type, opset)
    allowed = {c.type_param_str: c.allowed_type_strs for c in schema.type_constraints}
    if _TYPE_NAME[kind] not in allowed.get(schema.inputs[0].type_str, ()):
        raise ConfigError(
            f"ONNX has no {kind} form of {op_type} in opset {opset}", "Export with opset 22 or later, or choose fp16."
        )


def _risky(
    nodes: list[onnx.NodeProto], kinds: dict[str, int], ranges: Ranges, constants: dict[str, onnx.TensorProto]
) -> dict[str, str]:
    """Nodes that fp16 could break, with the reason."""
    limit = LARGEST_FP16 / SAFETY
    reasons: dict[str, str] = {}
    for node in nodes:
        largest = {name: ranges.values[name] for name in [*node.input, *node.output] if name in kinds}
        name = max(largest, key=lambda key: largest[key])
        total = ranges.accumulated.get(node.name, 0.0)
        if not largest[name] <= limit:
            reasons[node.name] = f"{name} reaches {largest[name]:.4g}, more than {limit:.0f}"
        elif not total <= limit:
            reasons[node.name] = f"it adds up magnitudes of {total:.4g}, more than {limit:.0f}"
        else:
            problem = _weight_problem([numpy_helper.to_array(constants[n]) for n in node.input if n in constants])
            if problem is not None:
                reasons[node.name] = problem
    return reasons


def _weight_problem(constants: list[NDArray[Any]]) -> str | None:
    """The harm that rounding to fp16 does to constants; None if it does none."""
    for values in (array for array in constants if array.dtype == np.float32):
        largest = float(np.abs(values).max(initial=0))
        if largest > LARGEST_FP16:
            return f"a constant is {largest:.4g}, more than {LARGEST_FP16:.0f}"
        if values.ndim == 4 and values.shape[0] > 1:
            rows = values.reshape(len(values), -1).astype(np.float64)
            norms = np.linalg.norm(rows, axis=1)
            errors = np.linalg.norm(rows - rows.astype(np.float16), axis=1)
            worst = float((errors / np.maximum(norms, max(NEGLIGIBLE * norms.max(), 1e-300))).max())
            if worst > KERNEL_ERROR:
                return f"rounding changes a kernel by {worst:.2%}"
    return None


def _saves_casts(nodes: list[onnx.NodeProto], kinds: dict[str, int], reasons: Mapping[str, str]) -> dict[str, str]:
    """Cheap nodes between fp32 ones that need fewer casts in fp32 too."""
    added: dict[str, str] = {}
    current = _count_casts(nodes, kinds, set(reasons))
    changed = True
    while changed:
        changed = False
        for node in nodes:
            if node.op_type == "Conv" or node.name in reasons or node.name in added:
                continue
            count = _count_casts(nodes, kinds, {*reasons, *added, node.name})
            if count < current:
                added[node.name], current, changed = "saves casts", count, True
    return added


def _count_casts(nodes: list[onnx.NodeProto], kinds: dict[str, int], full: set[str]) -> int:
    """The number of casts that a choice of fp32 nodes needs: one for every value that is read in the other format."""
    in_full = {name: node.name in full for node in nodes for name in node.output}
    crossed = {
        name for node in nodes for name in node.input if name in kinds and in_full[name] is not (node.name in full)
    }
    return len(crossed)


class _Rewriter:
    """Writes a copy of a graph in which some nodes compute in the short format, with casts where formats meet.

    An output of the graph stays fp32 under its name.

    Args:
        document: In fp32; it is not changed.
        kind: The short format.
        kinds: Element type of every floating-point value that a node writes.
        half_nodes: Names of the nodes to bring into the short format.
    """

    def __init__(self, document: onnx.ModelProto, kind: HalfKind, kinds: dict[str, int], half_nodes: set[str]) -> None:
        self.document, self.kind, self.kinds, self.half_nodes = document, kind, kinds, half_nodes
        self.copy = without_constants(document)
        graph = self.copy.graph
        inputs = {value.name for value in graph.input if value.type.tensor_type.elem_type == TensorProto.FLOAT}
        self.floats = inputs | set(kinds)
        self.outputs = {output.name for output in graph.output}
        self.constants = {n: t for n, t in constants_of(document).items() if t.data_type == TensorProto.FLOAT}
        self.is_half = {name: node.name in half_nodes for node in graph.node for name in node.output}
        self.nodes: dict[str, onnx.NodeProto] = {}
        self.rounded: dict[str, onnx.TensorProto] = {}

    def run(self) -> onnx.ModelProto:
        """The rewritten graph."""
        graph = self.copy.graph
        for node in list(graph.node):
            self._add(node)
        replace_nodes(self.copy, self.nodes.values())
        read = {name for node in graph.node for name in node.input}
        constants = (*self.document.graph.initializer, *self.rounded.values())
        graph.initializer.extend(tensor for tensor in constants if tensor.name in read)
        _plain_constant_names(self.copy, self.kind)
        return self.copy

    def _add(self, node: onnx.NodeProto) -> None:
        half = node.name in self.half_nodes
        set_inputs(node, [self._read(name, half) for name in node.input])
        written = node.output[0]
        is_output = half and written in self.outputs and written in self.kinds
        if is_output:
            node.name = node.output[0] = self._short(written)
        self.nodes[node.name] = node
        if is_output:
            self._read(written, half=False)

    def _read(self, name: str, half: bool) -> str:
        """The name of the value `name` in the wanted format; a constant is rounded and a value cast if need be."""
        if name in self.constants:
            if half and name not in self.rounded:
                values = numpy_helper.to_array(self.constants[name]).astype(
                    helper.tensor_dtype_to_np_dtype(_ELEMENT[self.kind])
                )
                self.rounded[name] = numpy_helper.from_array(values, self._short(name))
            return self._short(name) if half else name
        if name not in self.floats or self.is_half.get(name, False) is half:
            return self._short(name) if half and name in self.outputs else name
        if half:
            source, target, element = name, self._short(name), _ELEMENT[self.kind]
        else:
            source, element = self._read(name, half=True), TensorProto.FLOAT
            target = name if name in self.outputs else f"{name}.fp32"
        self.nodes.setdefault(target, helper.make_node("Cast", [source], [target], name=target, to=element))
        return target

    def _short(self, name: str) -> str:
        return f"{name}.{self.kind}"


def _plain_constant_names(document: onnx.ModelProto, kind: HalfKind) -> None:
    """Give rounded constants the name of the original if the original is not used any more."""
    present = set(constants_of(document))
    renamed = {
        name: name.removesuffix(f".{kind}")
        for name in present
        if name.endswith(f".{kind}") and name.removesuffix(f".{kind}") not in present
    }
    for tensor in document.graph.initializer:
        tensor.name = renamed.get(tensor.name, tensor.name)
    for node in document.graph.node:
        set_inputs(node, [renamed.get(name, name) for name in node.input])


@dataclass(frozen=True)
class MeasuredHalf:
    """A converted graph and how well it agrees with fp32."""

    document: onnx.ModelProto
    kept: dict[str, str]
    """Nodes that stay in fp32, with the reason."""
    agreement: float
    """Share of pixels with the class that the fp32 graph gives."""
    reached: bool
    """Whether the agreement reaches the goal; if no form does, this is the best one that was tried."""


def half_within(
    document: onnx.ModelProto,
    kind: HalfKind,
    feeds: Iterable[Feed],
    ranges: Ranges | None,
    goal: float = GOAL,
    progress: Callable[[str, float], None] = lambda what, agreement: None,
) -> MeasuredHalf:
    """The cheapest form that reaches the goal: all in `kind`, the final upsampling in fp32, or the classifier too.

    If the form with most nodes in fp32 does not reach the goal, the one in between is not tried.

    Args:
        document: In fp32.
        kind: The short format.
        feeds: Images to compare on; iterated up to four times.
        ranges: See `to_half`.
        goal: Share of pixels that must get the same class.
        progress: Told what was tried and the agreement that resulted.
    """
    reference = rows_of(document, feeds, exact=False)
    nodes = list(document.graph.node)
    last = max(index for index, node in enumerate(nodes) if node.op_type == "Conv")
    tail = {node.name: "final upsampling: argmax agreement" for node in nodes[last + 1 :]}
    classifier = {nodes[last].name: "classifier: argmax agreement"}

    def measured(what: str, keep: dict[str, str]) -> MeasuredHalf:
        converted, kept = to_half(document, kind, ranges, keep)
        share = agreement(reference, rows_of(converted, feeds))
        progress(what, share)
        return MeasuredHalf(converted, kept, share, share >= goal)

    cheapest = measured("all", {})
    if cheapest.reached:
        return cheapest
    safest = measured("upsampling and classifier in fp32", tail | classifier)
    if not safest.reached:
        return max(cheapest, safest, key=lambda half: half.agreement)
    between = measured("upsampling in fp32", tail)
    return between if between.reached else safest
