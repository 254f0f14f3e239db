"""What an exported graph may hold: nothing that costs time and is not the network."""

from __future__ import annotations

import onnx
from onnx import TensorProto

from rcil.errors import RcilError
from rcil_export.classify_interface import ClassifierInterface
from rcil_export.interface import INPUT_NAME, Interface

NETWORK = {"Conv", "LeakyRelu", "Relu", "Clip", "Add", "Concat", "MaxPool", "GlobalAveragePool", "AveragePool", "Pad"}
"""`Pad` replicates the borders of a windowed mean and nothing else."""
ENDS = {"Cast", "Transpose", "Sub", "Resize", "ArgMax"}
BY_OUTPUT = {
    "confidence": {"Softmax", "ReduceMax"},
    "scores": {"Flatten", "ReduceL2", "Div", "Reshape", "Softmax", "Mul", "ReduceSum"},
}
VARYING = {"Shape", "Gather"}
BRANCHES = {"BatchNormalization", "Mul", "Sub"}
QUANTISED = {"QuantizeLinear", "DequantizeLinear"}


class GraphError(RcilError):
    """A graph that holds something it should not."""

    exit_code = 5


def check_graph(document: onnx.ModelProto, interface: Interface | ClassifierInterface) -> None:
    """Raise `GraphError` for the first thing that `lint` finds; also runs ONNX's own checks."""
    problems = lint(document, interface)
    if problems:
        raise GraphError(f"the exported graph is not clean: {problems[0]}", "Nothing was written; report this.")
    try:
        onnx.checker.check_model(document, full_check=True)
    except (onnx.checker.ValidationError, onnx.shape_inference.InferenceError) as error:
        raise GraphError(
            f"the exported graph is not valid ONNX: {error}", "Nothing was written; report this."
        ) from error


def lint(document: onnx.ModelProto, interface: Interface | ClassifierInterface) -> list[str]:
    """Everything that is wrong, in words that name the node."""
    allowed = _allowed(interface)
    constants = {tensor.name for tensor in document.graph.initializer}
    used = {name for node in document.graph.node for name in node.input} | {o.name for o in document.graph.output}
    problems = [
        f"opset {opset.version}, not {interface.opset}" for opset in document.opset_import if _wrong(opset, interface)
    ]
    for node in document.graph.node:
        if node.op_type not in allowed:
            problems.append(f"{node.name} is a {node.op_type}, which has no place here")
        if node.op_type not in QUANTISED and all(name in constants for name in node.input if name):
            problems.append(f"{node.name} ({node.op_type}) computes a constant")
        if not any(name in used for name in node.output):
            problems.append(f"nobody reads {node.name} ({node.op_type})")
    problems += [f"the constant {name} is not used" for name in sorted(constants - used)]
    problems += _first_cast(document, interface)
    return problems


def _wrong(opset: onnx.OperatorSetIdProto, interface: Interface | ClassifierInterface) -> bool:
    return opset.domain == "" and opset.version != interface.opset


def _allowed(interface: Interface | ClassifierInterface) -> set[str]:
    allowed = NETWORK | ENDS
    for output in interface.outputs:
        allowed |= BY_OUTPUT.get(output, set())
    if not interface.shape.static:
        allowed |= VARYING
    if not interface.folded:
        allowed |= BRANCHES
    if interface.precision == "int8":
        allowed |= QUANTISED
    return allowed


def _first_cast(document: onnx.ModelProto, interface: Interface | ClassifierInterface) -> list[str]:
    """TensorRT takes uint8 only where a Cast reads it."""
    readers = [node for node in document.graph.node if INPUT_NAME in node.input and node.op_type != "Shape"]
    if interface.input == "uint8" and [node.op_type for node in readers] != ["Cast"]:
        return [f"the uint8 image is read by {[node.op_type for node in readers]}, not by one Cast"]
    kind = document.graph.input[0].type.tensor_type.elem_type
    wanted = TensorProto.UINT8 if interface.input == "uint8" else TensorProto.FLOAT
    return [] if kind == wanted else [f"the input has element type {kind}, not {wanted}"]
