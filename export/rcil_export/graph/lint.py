"""What an exported graph may contain: the network, and nothing that costs time without being part of it."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator

import numpy as np
import onnx
from onnx import TensorProto, numpy_helper

from rcil.core.errors import RcilError
from rcil.model.header import METADATA_KEY
from rcil.model.metadata import ADOPTED, ATTACHED, OWN
from rcil_export.graph.interface import INPUT_NAME, GraphInterface
from rcil_export.graph.nodes import constants_of, needed_values, with_declared_constants

LAYER_OPS = {"Conv", "LeakyRelu", "Relu", "Clip", "Add", "Concat", "MaxPool", "GlobalAveragePool", "AveragePool", "Pad"}
"""Operators of the network itself. `Pad` replicates the borders of a windowed mean."""
PRE_AND_POSTPROCESSING = {"Cast", "Transpose", "Sub", "Resize", "ArgMax"}
BY_OUTPUT = {
    "confidence": {"Softmax", "ReduceMax"},
    "scores": {"Flatten", "ReduceL2", "Div", "Reshape", "Softmax", "Mul", "ReduceSum"},
}
VARYING = {"Shape", "Gather"}
BRANCHES = {"BatchNormalization", "Mul", "Sub"}
QUANTISED = {"QuantizeLinear", "DequantizeLinear"}
LARGE = 4096
"""Constants of so many bytes are checked one by one."""


class GraphError(RcilError):
    """A graph that contains something it should not."""

    exit_code = 5


def check_graph(document: onnx.ModelProto, interface: GraphInterface) -> None:
    """Raise `GraphError` for the first thing that `lint` or ONNX's own checker finds."""
    problems = lint(document, interface)
    if problems:
        raise GraphError(f"the exported graph is not clean: {problems[0]}", "Nothing was written; report this.")
    invalid = invalid_onnx(document)
    if invalid is not None:
        raise GraphError(f"the exported graph is not valid ONNX: {invalid}", "Nothing was written; report this.")


def invalid_onnx(document: onnx.ModelProto) -> str | None:
    """What ONNX's own checker objects to, types and shapes included; None if the graph is valid.

    Large constants are checked one by one, because the checker copies a model several times.
    """
    context = onnx.checker.DEFAULT_CONTEXT
    try:
        for tensor in document.graph.initializer:
            onnx.checker.check_tensor(tensor, context)
        onnx.checker.check_model(with_declared_constants(document, LARGE), full_check=True)
    except (onnx.checker.ValidationError, onnx.shape_inference.InferenceError) as error:
        return str(error)
    return None


def lint(document: onnx.ModelProto, interface: GraphInterface) -> list[str]:
    """Everything that is wrong, each problem with the name of its node."""
    if kind_of_network(document) == ADOPTED:
        return [*_opset_problems(document, interface), *_hidden(document), *_first_cast(document, interface)]
    attached = is_attached(document)
    allowed = _allowed(interface)
    constants = constants_of(document)
    used = {name for node in document.graph.node for name in node.input} | {o.name for o in document.graph.output}
    needed = needed_values(document.graph.node, (output.name for output in document.graph.output))
    problems = [*_opset_problems(document, interface), *_hidden(document)]
    for node in document.graph.node:
        if (node.op_type not in allowed and not attached) or node.domain not in ("", "ai.onnx"):
            operator = ".".join(filter(None, (node.domain, node.op_type)))
            problems.append(f"{_named(node)} is a {operator}, which is not allowed here")
        if node.op_type not in QUANTISED and all(name in constants for name in node.input if name):
            problems.append(f"{_named(node)} ({node.op_type}) computes a constant")
        if not needed.intersection(node.output):
            problems.append(f"nobody reads {_named(node)} ({node.op_type})")
        if not interface.shows_branches and not attached:
            problems += _left_by_a_norm(node, constants)
    problems += _doubled(document.graph, constants)
    problems += [f"the constant {name} is not used" for name in sorted(constants.keys() - used)]
    problems += _first_cast(document, interface)
    return problems


def _opset_problems(document: onnx.ModelProto, interface: GraphInterface) -> Iterator[str]:
    for opset in document.opset_import:
        if opset.domain in ("", "ai.onnx") and opset.version != interface.opset:
            yield f"opset {opset.version}, not {interface.opset}"


def is_attached(document: onnx.ModelProto) -> bool:
    """Whether a graph states that it is a network of another library, which may have any operator of ONNX."""
    return kind_of_network(document) == ATTACHED


def kind_of_network(document: onnx.ModelProto) -> str | None:
    """What a graph states to be: `own`, `attached` or `adopted`; None if its description cannot be read."""
    for entry in document.metadata_props:
        if entry.key == METADATA_KEY:
            with contextlib.suppress(ValueError, TypeError, KeyError, RecursionError):
                architecture = json.loads(entry.value)["architecture"]
                return ADOPTED if "graph_sha256" in architecture else ATTACHED if "factory" in architecture else OWN
    return None


def _named(node: onnx.NodeProto) -> str:
    return node.name or next(iter(node.output), "a node without a name")


def _allowed(interface: GraphInterface) -> set[str]:
    allowed = LAYER_OPS | PRE_AND_POSTPROCESSING
    for output in interface.outputs:
        allowed |= BY_OUTPUT.get(output, set())
    if not interface.shape.static:
        allowed |= VARYING
    if interface.shows_branches:
        allowed |= BRANCHES
    if interface.precision == "int8":
        allowed |= QUANTISED
    return allowed


def _hidden(document: onnx.ModelProto) -> Iterator[str]:
    """Parts of a file that change what it computes without appearing among its nodes."""
    if document.functions:
        yield f"the file defines a function of its own, {document.functions[0].name}"
    if document.training_info:
        yield "the file contains instructions for training"
    if document.graph.sparse_initializer:
        yield f"the constant {document.graph.sparse_initializer[0].values.name} is sparse"
    if document.graph.quantization_annotation:
        yield f"{document.graph.quantization_annotation[0].tensor_name} has a quantisation annotation"


def _left_by_a_norm(node: onnx.NodeProto, constants: dict[str, onnx.TensorProto]) -> Iterator[str]:
    """Scales and shifts per channel, which belong into the convs of a folded network."""
    given = [constants[name] for name in node.input if name in constants]
    if node.op_type == "Add" and given:
        yield f"{_named(node)} adds the constant {given[0].name}: a shift belongs into the conv before it"
    if node.op_type == "Mul" and given and not np.any(numpy_helper.to_array(given[0])):
        yield f"{_named(node)} multiplies by zero"
    if node.op_type != "Conv" or len(node.input) < 2 or node.input[1] not in constants:
        return
    weight = constants[node.input[1]]
    outputs, inputs, *sides = (*weight.dims, 0, 0) if len(weight.dims) < 2 else weight.dims
    group = next((attribute.i for attribute in node.attribute if attribute.name == "group"), 1)
    if any(side != 1 for side in sides):
        return
    if (group > 1 and inputs == 1) or (group == 1 and outputs == inputs > 1 and _diagonal(weight)):
        yield f"{_named(node)} scales each channel by itself: a norm that was not folded"


def _diagonal(weight: onnx.TensorProto) -> bool:
    """Whether every output channel of a kernel [C, C, 1, 1] reads only the input channel of its own index."""
    values = numpy_helper.to_array(weight)[:, :, 0, 0]
    return not np.any(values[~np.eye(len(values), dtype=bool)])


def _doubled(graph: onnx.GraphProto, constants: dict[str, onnx.TensorProto]) -> Iterator[str]:
    """Nodes that repeat the computation of another node, with the same constants or with copies of them."""
    seen: dict[tuple[object, ...], list[onnx.NodeProto]] = {}
    for node in graph.node:
        found = ((name, constants.get(name)) for name in node.input)
        values = tuple(name if tensor is None else (tensor.data_type, *tensor.dims) for name, tensor in found)
        attributes = tuple(sorted(attribute.SerializeToString(deterministic=True) for attribute in node.attribute))
        alike = seen.setdefault((node.domain, node.op_type, attributes, values), [])
        twin = next((other for other in alike if _same_constants(node, other, constants)), None)
        if twin is not None:
            yield f"{_named(node)} ({node.op_type}) computes what {_named(twin)} computes"
        alike.append(node)


def _same_constants(a: onnx.NodeProto, b: onnx.NodeProto, constants: dict[str, onnx.TensorProto]) -> bool:
    pairs = [(x, y) for x, y in zip(a.input, b.input, strict=True) if x in constants and x != y]
    return all(
        np.array_equal(numpy_helper.to_array(constants[x]), numpy_helper.to_array(constants[y])) for x, y in pairs
    )


def _first_cast(document: onnx.ModelProto, interface: GraphInterface) -> list[str]:
    """TensorRT accepts a uint8 input only if a Cast reads it."""
    readers = [node for node in document.graph.node if INPUT_NAME in node.input and node.op_type != "Shape"]
    if interface.input == "uint8" and [node.op_type for node in readers] != ["Cast"]:
        return [f"the uint8 image is read by {[node.op_type for node in readers]}, not by one Cast"]
    kind = document.graph.input[0].type.tensor_type.elem_type if document.graph.input else None
    wanted = TensorProto.UINT8 if interface.input == "uint8" else TensorProto.FLOAT
    return [] if kind == wanted else [f"the input has element type {kind}, not {wanted}"]
