"""Every difference between two ONNX models, named by node, layer or field.

Models of different versions of rcil are the same if they differ only in inner names, in the order of nodes that do not
depend on each other, and in the way tensors are stored. All other differences count, also in texts, recorded shapes and
unknown fields. Models of one version are the same if all their fields are.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import numpy as np
import onnx
from google.protobuf.message import Message
from onnx import TensorProto, helper, numpy_helper

from rcil.core.errors import RcilError, first_line
from rcil_export.certificate.difference import first_difference
from rcil_export.certificate.graph import canonical, dims_of, type_and_dims
from rcil_export.graph.nodes import constants_of, label
from rcil_export.graph.onnx_file import texts_of
from rcil_export.verification.report import ABSENT, Difference, compare_documents, compare_tables, compare_texts

COMPARED_APART = {"graph", "metadata_props", "opset_import", "producer_version"}
"""Fields of a model that are compared separately; the version of the producer is only reported."""
NODE_FIELDS = {"name", "op_type", "domain", "input", "output", "attribute"}
TENSOR_FIELDS = {"name", "dims", "data_type"} | {
    field.name for field in onnx.TensorProto.DESCRIPTOR.fields if field.name.endswith("_data")
}
VALUE_FIELDS = {"name", "type"}
GRAPH_FIELDS = {"node", "initializer", "input", "output"}


def readable(
    compare: Callable[[onnx.ModelProto, onnx.ModelProto], Iterable[Difference]],
    delivered: onnx.ModelProto,
    expected: onnx.ModelProto,
) -> list[Difference]:
    """The differences that a comparison finds; a graph that is too damaged to be compared is a difference too."""
    try:
        return list(compare(delivered, expected))
    except (LookupError, TypeError, UnicodeError, ValueError, RecursionError) as error:
        return [Difference("the file", f"damaged: {first_line(error)}", "a graph that can be read")]


def model_differences(delivered: onnx.ModelProto, expected: onnx.ModelProto) -> list[Difference]:
    """All differences, metadata first; empty if both are the same model."""
    if delivered.SerializeToString(deterministic=True) == expected.SerializeToString(deterministic=True):
        return []
    found = [*_doubled(delivered), *compare_texts(texts_of(delivered), texts_of(expected))]
    found += _opsets(delivered, expected)
    found += _leftovers(delivered, expected)
    found += graph_differences(delivered, expected)
    if not found and delivered.producer_version == expected.producer_version:
        found += _written_differently(delivered, expected)
    return found


def _written_differently(delivered: onnx.ModelProto, expected: onnx.ModelProto) -> list[Difference]:
    """Differences of names, order and storage, which one version of rcil always writes in the same way."""
    named = [*_nodes(delivered.graph, expected.graph), *_constants(delivered.graph, expected.graph)]
    return named or [Difference("the order or storage of nodes, constants or texts", "another", "of a fresh export")]


def graph_differences(delivered: onnx.ModelProto, expected: onnx.ModelProto) -> list[Difference]:
    """Differences of the computation: inputs, outputs, nodes, wiring, attributes, constants."""
    outside = [t.name for t in delivered.graph.initializer if t.data_location == TensorProto.EXTERNAL]
    if outside:
        return [Difference(name, "stored in another file", "stored in the model") for name in outside]
    dangling = list(_dangling(delivered.graph))
    if not dangling and _canonical_bytes(delivered) == _canonical_bytes(expected):
        return []
    found = [
        *dangling,
        *end_differences(delivered, expected),
        *_nodes(delivered.graph, expected.graph),
        *_constants(delivered.graph, expected.graph),
    ]
    if dangling or (found and _share_names(delivered.graph, expected.graph)):
        return found
    return [_first(delivered, expected)]


def structure_differences(delivered: onnx.ModelProto, expected: onnx.ModelProto) -> list[Difference]:
    """Differences by name, except for the numbers of constants with the same type and shape."""
    if not _share_names(delivered.graph, expected.graph):
        return []
    sides = (constants_of(document) for document in (delivered, expected))
    forms = compare_tables(*({name: _tensor_text(tensor) for name, tensor in side.items()} for side in sides))
    return [*end_differences(delivered, expected), *_nodes(delivered.graph, expected.graph), *forms]


def _dangling(graph: onnx.GraphProto) -> Iterator[Difference]:
    """Values that are read but not defined; such a graph does not run."""
    given = {value.name for value in graph.input} | {tensor.name for tensor in graph.initializer}
    given |= {name for node in graph.node for name in node.output}
    for node in graph.node:
        for index, name in enumerate(node.input):
            if name and name not in given:
                yield Difference(
                    f"{label(node)}: input {index}", f"{name}, which is not defined", "a value of the graph"
                )
    for value in graph.output:
        if value.name not in given:
            yield Difference(f"output {value.name}", "not defined", "a value of the graph")


def _canonical_bytes(document: onnx.ModelProto) -> bytes:
    """The graph under canonical names, with all tensors stored as raw bytes."""
    plain = canonical(document)
    for tensor in plain.graph.initializer:
        tensor.CopyFrom(_raw(tensor))
    return plain.SerializeToString(deterministic=True)


def _raw(tensor: onnx.TensorProto) -> onnx.TensorProto:
    """The same numbers as raw bytes; a tensor that cannot be read, or is in another file, is returned unchanged."""
    if tensor.data_location == TensorProto.EXTERNAL:
        return tensor
    try:
        array = numpy_helper.to_array(tensor)
    except (ValueError, TypeError):
        return tensor
    plain = numpy_helper.from_array(array, tensor.name)
    plain.data_type = tensor.data_type
    return plain


def _share_names(delivered: onnx.GraphProto, expected: onnx.GraphProto) -> bool:
    """Whether the graphs have so many names in common that a comparison by name is useful."""
    wanted = {node.name for node in expected.node}
    return 2 * len(wanted & {node.name for node in delivered.node}) >= len(wanted)


def _first(delivered: onnx.ModelProto, expected: onnx.ModelProto) -> Difference:
    """The first difference in structure, or else in numbers, of graphs with other names."""
    try:
        structure = first_difference(delivered, expected)
    except (RcilError, ValueError, onnx.shape_inference.InferenceError) as error:
        structure = first_line(error)
    if structure is not None:
        return Difference("the graph, node by node", structure, "the graph of a fresh export")
    weights = next(iter(_constants(canonical(delivered).graph, canonical(expected).graph)), None)
    return weights or Difference("the graph", "another form of it", "the graph of a fresh export")


def _doubled(document: onnx.ModelProto) -> Iterator[Difference]:
    """Names that occur twice, of which different readers may take different ones."""
    graph = document.graph
    lists = {
        "metadata": [entry.key for entry in document.metadata_props],
        "node": [node.name for node in graph.node if node.name],
        "constant": [tensor.name for tensor in graph.initializer],
        "value": [name for node in graph.node for name in node.output if name],
    }
    for kind, names in lists.items():
        for name, count in Counter(names).items():
            if count > 1:
                yield Difference(f"{kind} {name}", f"{count} of this name", "one")


def _opsets(delivered: onnx.ModelProto, expected: onnx.ModelProto) -> Iterator[Difference]:
    found, wanted = (sorted((o.domain, o.version) for o in side.opset_import) for side in (delivered, expected))
    if found != wanted:
        yield Difference("opset", *(", ".join(f"{d or 'ai.onnx'} {v}" for d, v in side) for side in (found, wanted)))


def _leftovers(delivered: onnx.ModelProto, expected: onnx.ModelProto) -> Iterator[Difference]:
    """Fields that the other comparisons ignore; an honest file has none of them."""
    return compare_documents(dict(_extra_fields(delivered)), dict(_extra_fields(expected)))


def _extra_fields(document: onnx.ModelProto) -> Iterator[tuple[str, str]]:
    graph = document.graph
    yield from _fields("the model", document, COMPARED_APART)
    yield from _fields("the graph", graph, GRAPH_FIELDS)
    for node in graph.node:
        yield from _fields(label(node), node, NODE_FIELDS)
    for value in (*graph.input, *graph.output):
        yield from _fields(value.name, value, VALUE_FIELDS)
    for tensor in graph.initializer:
        yield from _fields(tensor.name, tensor, TENSOR_FIELDS)
    known = onnx.ModelProto()
    known.CopyFrom(document)
    known.DiscardUnknownFields()
    if hidden := document.ByteSize() - known.ByteSize():
        yield "unknown protobuf fields", f"{hidden} bytes"


def _fields(owner: str, message: Message, known: set[str]) -> Iterator[tuple[str, str]]:
    for field, value in message.ListFields():
        if field.name not in known:
            text = str(value) if not isinstance(value, Message) else value.__class__.__name__
            yield f"{owner}: {field.name}", " ".join(text.split())[:200]


def end_differences(delivered: onnx.ModelProto, expected: onnx.ModelProto) -> Iterator[Difference]:
    """Inputs and outputs with their types and dims, by name, and their order."""
    for side in ("input", "output"):
        found, wanted = (
            {value.name: _type_text(value) for value in getattr(document.graph, side)}
            for document in (delivered, expected)
        )
        for name in dict.fromkeys([*wanted, *found]):
            if found.get(name) != wanted.get(name):
                yield Difference(f"{side} {name}", found.get(name, ABSENT), wanted.get(name, ABSENT))
        if found == wanted and list(found) != list(wanted):
            yield Difference(f"the order of the {side}s", ", ".join(found), ", ".join(wanted))


def _type_text(value: onnx.ValueInfoProto) -> str:
    kind = value.type.WhichOneof("value")
    return type_and_dims(value.type.tensor_type.elem_type, dims_of(value)) if kind == "tensor_type" else str(kind)


def _nodes(delivered: onnx.GraphProto, expected: onnx.GraphProto) -> Iterator[Difference]:
    """Nodes by name: missing, additional and different ones."""
    found, wanted = ({node.name: node for node in graph.node} for graph in (delivered, expected))
    for name in dict.fromkeys([*wanted, *found]):
        if name not in found or name not in wanted:
            sides = (f"a {side[name].op_type}" if name in side else ABSENT for side in (found, wanted))
            yield Difference(label((wanted if name in wanted else found)[name]), *sides)
        else:
            yield from _node(found[name], wanted[name])


def _node(delivered: onnx.NodeProto, expected: onnx.NodeProto) -> Iterator[Difference]:
    where = label(expected)
    sides = (delivered, expected)
    yield from compare_tables(*({f"{where}: {key}": text for key, text in _node_facts(node)} for node in sides))


def _node_facts(node: onnx.NodeProto) -> Iterator[tuple[str, str]]:
    yield "op", ".".join(filter(None, (node.domain, node.op_type)))
    for attribute in node.attribute:
        kind = onnx.AttributeProto.AttributeType.Name(attribute.type).lower()
        yield attribute.name, f"{_attribute(attribute)} ({kind})"
    for side in ("input", "output"):
        for index, name in enumerate(getattr(node, side)):
            yield f"{side} {index}", name or ABSENT


def _attribute(attribute: onnx.AttributeProto) -> Any:
    try:
        return helper.get_attribute_value(attribute)
    except (ValueError, TypeError):
        return "an attribute without a value"


def _constants(delivered: onnx.GraphProto, expected: onnx.GraphProto) -> Iterator[Difference]:
    """Constants by name: missing and additional ones, and other types, shapes and numbers."""
    found, wanted = ({tensor.name: tensor for tensor in graph.initializer} for graph in (delivered, expected))
    for name in dict.fromkeys([*wanted, *found]):
        if name not in found or name not in wanted:
            yield Difference(name, *(_tensor_text(side[name]) if name in side else ABSENT for side in (found, wanted)))
        elif difference := compare_tensors(found[name], wanted[name]):
            yield difference


def compare_tensors(delivered: onnx.TensorProto, expected: onnx.TensorProto) -> Difference | None:
    """The first number that differs and the count of such numbers, or other types and shapes."""
    sides = [_tensor_text(tensor) for tensor in (delivered, expected)]
    if sides[0] != sides[1]:
        return Difference(expected.name, *sides)
    try:
        found, wanted = (numpy_helper.to_array(tensor) for tensor in (delivered, expected))
    except (ValueError, TypeError) as error:
        return Difference(expected.name, f"cannot be read: {first_line(error)}", sides[1])
    differing = np.atleast_1d(_bits(found) != _bits(wanted))
    if not differing.any():
        return None
    at = tuple(int(index) for index in np.argwhere(differing)[0])
    index = f"[{', '.join(map(str, at))}]" if found.ndim else ""
    first, second = (np.atleast_1d(side)[at] for side in (found, wanted))
    count = f"; {int(differing.sum())} of {differing.size} values differ" if differing.size > 1 else ""
    return Difference(f"{expected.name}{index}", f"{first!s}{count}", str(second))


def _bits(array: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Bit patterns: NaN equals itself, and -0 is not 0."""
    kinds: dict[int, Any] = {1: np.uint8, 2: np.uint16, 4: np.uint32, 8: np.uint64}
    return np.ascontiguousarray(array).view(kinds[array.itemsize]) if array.itemsize in kinds else array


def _tensor_text(tensor: onnx.TensorProto) -> str:
    return type_and_dims(tensor.data_type, list(tensor.dims))
