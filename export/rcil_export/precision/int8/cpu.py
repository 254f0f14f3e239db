"""The int8 graph in the form that ONNX Runtime's CPU kernels want. No torch here."""

from __future__ import annotations

import numpy as np
import onnx
from onnx import helper, numpy_helper

from rcil_export.graph.nodes import constants_of, replace_nodes
from rcil_export.precision.record import Form


def in_form(document: onnx.ModelProto, form: Form) -> onnx.ModelProto:
    """The quantised graph in the form that its runtime wants."""
    return for_cpu(document) if form == "cpu" else document


def for_cpu(document: onnx.ModelProto) -> onnx.ModelProto:
    """The same int8 graph with uint8 values, and with a Q/DQ pair in front of every leaky ReLU.

    ONNX Runtime on x86 fuses a conv into an int8 kernel only if its result is quantised at once and as uint8. It turns
    int8 into uint8 itself, but not where a value has two readers, so it leaves a third of a ResNet's convs in fp32.
    uint8 with zero point 128 means the same numbers as int8 with zero point 0. The pair in front of a leaky ReLU has
    the scale of the pair after it, so that positive values are rounded only once. Values after a ReLU or ReLU6 are
    never negative; they get zero point 0 and half the step, so that quantising replaces the activation.

    Args:
        document: From `Quantised.without`; it is not changed.
    """
    copy = onnx.ModelProto.FromString(document.SerializeToString())
    constants = constants_of(copy)
    _unsigned(copy, constants)
    _absorb_relus(copy, constants)
    _pairs_before_leaky(copy)
    return copy


def _unsigned(document: onnx.ModelProto, constants: dict[str, onnx.TensorProto]) -> None:
    """int8 around 0 -> uint8 around 128, for values; weights stay as they are."""
    zeros = {
        node.input[2]
        for node in document.graph.node
        if node.op_type in ("QuantizeLinear", "DequantizeLinear") and node.input[0] not in constants
    }
    for name in sorted(zeros):
        shape = numpy_helper.to_array(constants[name]).shape
        constants[name].CopyFrom(numpy_helper.from_array(np.full(shape, 128, np.uint8), name))


def _absorb_relus(document: onnx.ModelProto, constants: dict[str, onnx.TensorProto]) -> None:
    """Quantise from 0 instead of around 128 after a ReLU or ReLU6; ONNX Runtime then drops the activation."""
    graph = document.graph
    relus = {node.output[0] for node in graph.node if node.op_type in ("Relu", "Clip")}
    steps = {node.output[0] for node in graph.node if node.op_type == "QuantizeLinear" and node.input[0] in relus}
    for node in graph.node:
        if not steps.intersection((*node.input, *node.output)):
            continue
        if node.op_type not in ("QuantizeLinear", "DequantizeLinear"):
            raise AssertionError(f"{node.name} reads quantised steps instead of values")
        wide = node.input[1]
        names = f"{wide}.from_zero", f"{wide}.zero"
        if names[0] not in constants:
            scale = numpy_helper.to_array(constants[wide]) * np.float32(127 / 255)
            for name, value in zip(names, (scale, np.uint8(0)), strict=True):
                constants[name] = numpy_helper.from_array(np.asarray(value), name)
                graph.initializer.append(constants[name])
        node.input[1], node.input[2] = names


def _pairs_before_leaky(document: onnx.ModelProto) -> None:
    """Conv -> leaky ReLU -> Q becomes conv -> Q -> DQ -> leaky ReLU -> Q, with the same scale."""
    quantised = {node.input[0]: node for node in document.graph.node if node.op_type == "QuantizeLinear"}
    written = {name: node for node in document.graph.node for name in node.output}
    nodes = list(document.graph.node)
    for node in document.graph.node:
        after = quantised.get(node.output[0])
        before = written.get(node.input[0]) if node.op_type == "LeakyRelu" else None
        if after is None or before is None or before.op_type == "DequantizeLinear":
            continue
        steps, values = f"{before.name}.quantised", f"{before.name}.values"
        nodes.append(helper.make_node("QuantizeLinear", [before.output[0], *after.input[1:]], [steps], name=steps))
        nodes.append(helper.make_node("DequantizeLinear", [steps, *after.input[1:]], [values], name=values))
        node.input[0] = values
    replace_nodes(document, nodes)
