"""Reducing a graph of any precision to the fp32 graph it was converted from, so that both can be compared.

The reduction removes only what a conversion adds: casts between floating-point types, and pairs of `QuantizeLinear` and
`DequantizeLinear`. Both cost time, so each of them must be needed by its neighbours. Those that are not are reported
and kept in the graph, so that the comparison finds them too.

- A cast connects a node that writes one type and nodes that read another. A value is cast to a type only once, and a
  value that was just cast is not cast again.
- A pair rounds an input or output of a quantised node, once. There is no pair between a conv and the activation that
  is its only reader, except before a leaky ReLU in the form for CPUs.
- A quantised conv reads both its values and its kernel from a pair; a conv in fp32 reads neither from a pair.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import onnx
from onnx import TensorProto, numpy_helper

from rcil_export.graph.interface import GraphInterface
from rcil_export.graph.nodes import ACTIVATIONS, constants_of, label, readers_of, with_declared_constants

FLOATS = (TensorProto.FLOAT, TensorProto.FLOAT16, TensorProto.BFLOAT16)
ROUNDS = ("QuantizeLinear", "DequantizeLinear")
ROUNDED_OPS = frozenset(
    {"Add", "AveragePool", "Clip", "Concat", "Conv", "GlobalAveragePool", "LeakyRelu", "MaxPool", "Pad", "Relu"}
)
"""Operations whose values may be rounded to 8 bits; pre- and postprocessing stay in fp32."""


@dataclass(frozen=True)
class Reduced:
    """A graph without casts and pairs."""

    document: onnx.ModelProto
    """In fp32 and without the values of its weights."""
    problems: tuple[str, ...]
    """Casts and pairs that nothing needs, with their names."""
    casts: int
    pairs: int


def reduce(document: onnx.ModelProto, interface: GraphInterface) -> Reduced:
    """Remove casts and pairs; see the description of this module.

    Args:
        document: Valid ONNX; it is not changed.
        interface: As the file records it.
    """
    graph = _Graph(document, interface)
    bad = {node.output[0]: text for node, text in graph.problems()}
    gone = {node.output[0] for node in graph.added() if node.output[0] not in bad}
    casts = sum(graph.writer[name].op_type == "Cast" for name in gone)
    pairs = sum(graph.writer[name].op_type == "DequantizeLinear" for name in gone)
    return Reduced(graph.without(gone), tuple(bad.values()), casts, pairs)


class _Graph:
    def __init__(self, document: onnx.ModelProto, interface: GraphInterface) -> None:
        self.document = document
        self.nodes = list(document.graph.node)
        self.constants = constants_of(document)
        self.writer = {name: node for node in self.nodes for name in node.output}
        self.readers = readers_of(self.nodes)
        self.outputs = {value.name for value in document.graph.output}
        self.kinds = _kinds(document)
        self.leaky_pairs = interface.for_cpu

    def added(self) -> Iterator[onnx.NodeProto]:
        """Nodes that a conversion adds: casts between floating-point types, and both halves of pairs."""
        for node in self.nodes:
            if node.op_type in ROUNDS or self.float_cast(node):
                yield node

    def float_cast(self, node: onnx.NodeProto | None) -> bool:
        """Whether a node casts one floating-point type to another, or to the same."""
        if node is None or node.op_type != "Cast":
            return False
        return self.kinds.get(node.input[0]) in FLOATS and self.kinds.get(node.output[0]) in FLOATS

    def problems(self) -> Iterator[tuple[onnx.NodeProto, str]]:
        """Nodes among `added` that nothing needs, and why."""
        for node in self.added():
            text = self._cast(node) if node.op_type == "Cast" else self._round(node)
            if text is not None:
                yield node, f"{label(node)} {text}"
        for node in self.nodes:
            if node.op_type == "Conv":
                yield from self._half_rounded(node)

    def _cast(self, node: onnx.NodeProto) -> str | None:
        source, target = node.input[0], node.output[0]
        if self.kinds[source] == self.kinds[target]:
            return "casts a value to the type that it has"
        if self.float_cast(self.writer.get(source)):
            return f"casts {source}, which was just cast"
        first = next(
            other
            for other in self.readers[source]
            if other.op_type == "Cast" and self.kinds.get(other.output[0]) == self.kinds[target]
        )
        return None if first == node else f"casts {source} a second time"

    def _round(self, node: onnx.NodeProto) -> str | None:
        if len(node.input) < 2 or any(name not in self.constants for name in node.input[1:]):
            return "has a scale that is not stored"
        return self._quantise(node) if node.op_type == "QuantizeLinear" else self._dequantise(node)

    def _quantise(self, node: onnx.NodeProto) -> str | None:
        source = node.input[0]
        if source in self.constants:
            return None
        made_by = self.writer.get(source)
        if made_by is not None and made_by.op_type == "DequantizeLinear":
            return f"rounds {source}, which was just rounded"
        if any(other.op_type != "DequantizeLinear" for other in self.readers.get(node.output[0], [])):
            return "is read by a node that needs values, not steps"
        if next(other for other in self.readers[source] if other.op_type == "QuantizeLinear") != node:
            return f"rounds {source} a second time"
        if made_by is not None and not self._may_be_rounded(made_by) and not self._feeds_conv(node):
            return f"rounds {source}, which is postprocessing"
        return None

    def _may_be_rounded(self, node: onnx.NodeProto) -> bool:
        """Whether a node belongs to the network. So does the upsampling of DeepLab-v3+, which a Concat alone reads."""
        if node.op_type != "Resize":
            return node.op_type in ROUNDED_OPS
        after = list(self.readers.get(node.output[0], []))
        while any(reader.op_type in ROUNDS for reader in after):
            after = [r for x in after for r in (self.readers.get(x.output[0], []) if x.op_type in ROUNDS else [x])]
        return bool(after) and all(reader.op_type == "Concat" for reader in after)

    def _feeds_conv(self, node: onnx.NodeProto) -> bool:
        after = [reader for dq in self.readers.get(node.output[0], []) for reader in self.readers.get(dq.output[0], [])]
        return bool(after) and all(reader.op_type == "Conv" for reader in after)

    def _dequantise(self, node: onnx.NodeProto) -> str | None:
        source = node.input[0]
        after = self.readers.get(node.output[0], [])
        if source in self.constants or self._rounds_constant(source):
            wrong = [reader for reader in after if reader.op_type != "Conv" or reader.input[1] != node.output[0]]
            return f"holds a constant that {wrong[0].name} reads as something other than a kernel" if wrong else None
        made_by = self.writer.get(source)
        if made_by is None or made_by.op_type != "QuantizeLinear":
            return f"reads {source}, which is not rounded"
        if not self._same_steps(made_by, node):
            return f"has another scale or zero point than {made_by.name}"
        if next(other for other in self.readers[source] if other.op_type == "DequantizeLinear") != node:
            return f"reads {source} a second time"
        return self._readers_of_pair(node, made_by, after)

    def _readers_of_pair(
        self, node: onnx.NodeProto, made_by: onnx.NodeProto, after: list[onnx.NodeProto]
    ) -> str | None:
        """What is wrong with the readers of a rounded value."""
        if node.output[0] in self.outputs:
            return "rounds an output of the graph"
        for reader in after:
            if not self._may_be_rounded(reader):
                return f"rounds what {reader.name} ({reader.op_type}) reads, which is postprocessing"
        alone = len(after) == 1 and after[0].op_type in ACTIVATIONS
        if alone and not (self.leaky_pairs and after[0].op_type == "LeakyRelu"):
            return f"stands between {made_by.input[0]} and its activation {after[0].name}"
        return None

    def _rounds_constant(self, name: str) -> bool:
        made_by = self.writer.get(name)
        return made_by is not None and made_by.op_type == "QuantizeLinear" and made_by.input[0] in self.constants

    def _same_steps(self, a: onnx.NodeProto, b: onnx.NodeProto) -> bool:
        if len(a.input) != len(b.input):
            return False
        pairs = (
            [numpy_helper.to_array(self.constants[name]) for name in names]
            for names in zip(a.input[1:], b.input[1:], strict=True)
        )
        return all(np.array_equal(one, other) for one, other in pairs)

    def _half_rounded(self, node: onnx.NodeProto) -> Iterator[tuple[onnx.NodeProto, str]]:
        """A conv of which only the values or only the kernel are rounded: the pair costs time and gains nothing."""
        values, kernel = (self.writer.get(name) for name in node.input[:2])
        rounded = [made_by is not None and made_by.op_type == "DequantizeLinear" for made_by in (values, kernel)]
        if rounded[0] != rounded[1]:
            pair = values if rounded[0] else kernel
            assert pair is not None
            what, other = ("values", "kernel") if rounded[0] else ("kernel", "values")
            yield pair, f"{pair.name} rounds the {what} of {node.name}, whose {other} are not rounded"

    def without(self, gone: set[str]) -> onnx.ModelProto:
        """The graph in fp32 without the nodes that write these values; weights lose their numbers."""
        named: dict[str, str] = {}
        for name in gone:
            source = name
            while source in gone:
                source = self.writer[source].input[0]
            named[name] = source
        back = {source: name for name, source in named.items() if name in self.outputs}
        left = onnx.ModelProto(ir_version=self.document.ir_version)
        left.opset_import.extend(self.document.opset_import)
        left.graph.name = self.document.graph.name
        left.graph.input.extend(self.document.graph.input)
        left.graph.output.extend(self.document.graph.output)
        for node in self.nodes:
            if node.output[0] in gone:
                continue
            copy = left.graph.node.add()
            copy.CopyFrom(node)
            del copy.input[:], copy.output[:]
            read = (named.get(name, name) for name in node.input)
            copy.input.extend(back.get(name, name) for name in read)
            copy.output.extend(back.get(name, name) for name in node.output)
        used = {name for node in left.graph.node for name in node.input}
        kernels = {node.input[1] for node in left.graph.node if node.op_type == "Conv"}
        for name, tensor in self.constants.items():
            if name in used or name not in self.readers:  # the others went with the nodes that read them
                left.graph.initializer.append(_in_fp32(tensor, kernel=name in kernels))
        return left


def _in_fp32(tensor: onnx.TensorProto, *, kernel: bool) -> onnx.TensorProto:
    """A constant as the plain graph would hold it; the kernel of a conv without its numbers, which take memory."""
    if kernel:
        return onnx.TensorProto(name=tensor.name, dims=tensor.dims, data_type=TensorProto.FLOAT)
    if tensor.data_type in (TensorProto.FLOAT16, TensorProto.BFLOAT16):
        return numpy_helper.from_array(numpy_helper.to_array(tensor).astype(np.float32), tensor.name)
    return tensor


def _kinds(document: onnx.ModelProto) -> dict[str, int]:
    """Element type of every value that is not a constant."""
    light = with_declared_constants(document)
    del light.graph.value_info[:]  # what the file says about types is not believed
    graph = onnx.shape_inference.infer_shapes(light, data_prop=True).graph
    values = (*document.graph.input, *graph.value_info, *graph.output)
    return {value.name: value.type.tensor_type.elem_type for value in values}
