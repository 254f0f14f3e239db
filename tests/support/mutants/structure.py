"""Nodes, wiring and attributes that a fresh export does not have; most leave all outputs as they are."""

from __future__ import annotations

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from mutants.editing import (
    FLOAT,
    a_conv,
    attribute,
    constant,
    edit,
    expand_depthwise,
    insert,
    make,
    nodes_of,
    numpy_type,
    set_attribute,
    stored,
)
from mutants.kinds import FLOATS, FORMS, SEGMENTERS, mutant

LEAKY = tuple(form for form in FORMS if form != "lite")
"""Forms of networks with leaky ReLUs."""


@mutant("structure", "an Identity after a conv")
def identity(document):
    conv = a_conv(document)
    insert(document, conv.output[0], make("Identity", [conv.output[0]], f"{conv.name}.same"))
    return f"{conv.name}.same"


@mutant("structure", "a conv's output times 1")
def times_one(document):
    conv = a_conv(document)
    one = constant(document, "one", np.ones((), numpy_type(document, conv.output[0])))
    insert(document, conv.output[0], make("Mul", [conv.output[0], one], f"{conv.name}.scaled"))
    return f"{conv.name}.scaled"


@mutant("structure", "a second branch times 0")
def zero_branch(document):
    conv = a_conv(document)
    zero = constant(document, "zero_share", np.zeros((), numpy_type(document, conv.output[0])))
    twin = _again(conv, "twin")
    share = make("Mul", [twin.output[0], zero], f"{conv.name}.share")
    mixed = make("Add", [conv.output[0], share.output[0]], f"{conv.name}.mixed")
    insert(document, conv.output[0], mixed)
    _before(document, mixed, twin, share)
    return f"{conv.name}.mixed"


@mutant("structure", "a conv split into the sum of two halves", FLOATS)
def halved_conv(document):
    conv = a_conv(document)
    weights = list(dict.fromkeys(conv.input[1:]))
    for name in weights:
        edit(stored(document, name), lambda w: w / 2)
    twin = _again(conv, "twin")
    mixed = make("Add", [conv.output[0], twin.output[0]], f"{conv.name}.mixed")
    insert(document, conv.output[0], mixed)
    _before(document, mixed, twin)
    return f"{conv.name}.mixed"


@mutant("structure", "a conv whose output nobody reads")
def dead_conv(document):
    conv = a_conv(document)
    document.graph.node.append(_again(conv, "dead"))
    return f"{conv.name}.dead"


@mutant("structure", "a constant that nobody reads")
def dead_constant(document):
    return constant(document, "payload", np.arange(64, dtype=np.float32))


@mutant("structure", "another output of the graph")
def extra_output(document):
    conv = a_conv(document)
    graph = onnx.shape_inference.infer_shapes(document).graph
    (value,) = [entry for entry in graph.value_info if entry.name == conv.output[0]]
    document.graph.output.append(value)
    return f"output {conv.output[0]}"


@mutant("structure", "the output mask under another name", SEGMENTERS)
def renamed_output(document):
    (node,) = [node for node in document.graph.node if "mask" in node.output]
    node.output[0] = document.graph.output[0].name = "classes"
    return "classes"


@mutant("structure", "the output mask as int64", SEGMENTERS)
def wide_mask(document):
    (node,) = [node for node in document.graph.node if "mask" in node.output]
    set_attribute(node, "to", TensorProto.INT64)
    document.graph.output[0].type.tensor_type.elem_type = TensorProto.INT64
    return "mask"


@mutant("structure", "a norm that was not folded", FLOATS)
def unfolded_norm(document):
    conv = a_conv(document)
    channels = stored(document, conv.input[1]).dims[0]
    ones, zeros = np.ones(channels, np.float32), np.zeros(channels, np.float32)
    values = {"scale": ones, "shift": zeros, "mean": zeros, "var": ones}
    names = [constant(document, f"{conv.name}.norm.{key}", value) for key, value in values.items()]
    insert(
        document, conv.output[0], make("BatchNormalization", [conv.output[0], *names], f"{conv.name}.norm", epsilon=0.0)
    )
    return f"{conv.name}.norm"


@mutant("structure", "a norm left behind as a depthwise 1x1 conv", FLOATS)
def norm_as_conv(document):
    conv = a_conv(document)
    channels = stored(document, conv.input[1]).dims[0]
    weight = constant(document, f"{conv.name}.norm.weight", np.ones((channels, 1, 1, 1), np.float32))
    bias = constant(document, f"{conv.name}.norm.bias", np.zeros(channels, np.float32))
    node = make("Conv", [conv.output[0], weight, bias], f"{conv.name}.norm", kernel_shape=[1, 1], group=channels)
    insert(document, conv.output[0], node)
    return f"{conv.name}.norm"


@mutant("structure", "a depthwise conv expanded to a dense one", ("lite",))
def dense_depthwise(document):
    return expand_depthwise(document).name


@mutant("structure", "two inputs of a Concat swapped", SEGMENTERS)
def swapped_concat(document):
    concat = _features_concat(document)
    concat.input[0], concat.input[1] = concat.input[1], concat.input[0]
    return concat.name


@mutant("structure", "two inputs of a Concat swapped, and the weights behind it", ("fp32", "dynamic", "lite"))
def swapped_concat_and_weights(document):
    concat = _features_concat(document)
    concat.input[0], concat.input[1] = concat.input[1], concat.input[0]
    (reader,) = [node for node in document.graph.node if concat.output[0] in node.input]

    def swap(weight):
        width = weight.shape[1] // len(concat.input)
        return np.concatenate([weight[:, width : 2 * width], weight[:, :width], weight[:, 2 * width :]], axis=1)

    edit(stored(document, reader.input[1]), swap)
    return concat.name


@mutant("structure", "a value quantised and back", (*FLOATS, "int8", "qdq"))
def extra_quantisation(document):
    conv = a_conv(document)
    scale = constant(document, "extra_scale", np.array(0.05, np.float32))
    zero = constant(document, "extra_zero", np.array(0, np.int8))
    short = make("QuantizeLinear", [conv.output[0], scale, zero], f"{conv.name}.short")
    long = make("DequantizeLinear", [short.output[0], scale, zero], f"{conv.name}.long")
    insert(document, conv.output[0], short, long)
    return f"{conv.name}.short"


@mutant("structure", "a value cast to another type and back")
def extra_casts(document):
    conv = a_conv(document)
    kind = np.dtype(numpy_type(document, conv.output[0]))
    other, back = (TensorProto.DOUBLE, FLOAT) if kind == np.float32 else (FLOAT, TensorProto.FLOAT16)
    there = make("Cast", [conv.output[0]], f"{conv.name}.there", to=other)
    insert(document, conv.output[0], there, make("Cast", [there.output[0]], f"{conv.name}.back", to=back))
    return f"{conv.name}.there"


@mutant("structure", "a dilation", SEGMENTERS)
def dilation(document):
    conv = _padded(document)
    set_attribute(conv, "dilations", [2 * side for side in attribute(conv, "dilations")])
    set_attribute(conv, "pads", [2 * side for side in attribute(conv, "pads")])
    return f"{conv.name} (Conv): dilations"


@mutant("structure", "the padding moved to one side", SEGMENTERS)
def pads(document):
    conv = _padded(document)
    top, left, bottom, right = attribute(conv, "pads")
    set_attribute(conv, "pads", [top + bottom, left + right, 0, 0])
    return f"{conv.name} (Conv): pads"


@mutant("structure", "the stride of the first conv")
def strides(document):
    conv = nodes_of(document, "Conv")[0]
    sides = attribute(conv, "strides")
    set_attribute(conv, "strides", [1, 1] if sides == [2, 2] else [2, 2])
    return f"{conv.name} (Conv): strides"


@mutant("structure", "a conv in two groups", FLOATS)
def group(document):
    conv = next(n for n in nodes_of(document, "Conv")[2:] if attribute(n, "group") == 1)
    edit_shape = stored(document, conv.input[1])
    weight = numpy_helper.to_array(edit_shape)
    edit_shape.CopyFrom(
        numpy_helper.from_array(np.ascontiguousarray(weight[:, : weight.shape[1] // 2]), edit_shape.name)
    )
    set_attribute(conv, "group", 2)
    return f"{conv.name} (Conv): group"


@mutant("structure", "the slope of a leaky ReLU", LEAKY)
def slope(document):
    node = nodes_of(document, "LeakyRelu")[3]
    set_attribute(node, "alpha", 0.02)
    return f"{node.name} (LeakyRelu): alpha"


@mutant("structure", "a leaky ReLU that became a ReLU", LEAKY)
def relu(document):
    node = nodes_of(document, "LeakyRelu")[3]
    node.op_type = "Relu"
    del node.attribute[:]
    return node.name


@mutant("structure", "the axis of the confidence's Softmax", ("fp32", "dynamic"))
def axis(document):
    (node,) = nodes_of(document, "Softmax")
    set_attribute(node, "axis", 2)
    return f"{node.name} (Softmax): axis"


@mutant("structure", "the last of equal logits wins")
def last_of_equals(document):
    (node,) = nodes_of(document, "ArgMax")
    set_attribute(node, "select_last_index", 1)
    return f"{node.name} (ArgMax): select_last_index"


@mutant("structure", "the upsampling takes the nearest", SEGMENTERS)
def resize_mode(document):
    (node,) = nodes_of(document, "Resize")
    set_attribute(node, "mode", "nearest")
    return f"{node.name} (Resize): mode"


@mutant("structure", "the upsampling aligns the corners", SEGMENTERS)
def resize_coordinates(document):
    (node,) = nodes_of(document, "Resize")
    set_attribute(node, "coordinate_transformation_mode", "align_corners")
    return f"{node.name} (Resize): coordinate_transformation_mode"


@mutant("structure", "the largest in place of the mean of the map")
def global_max(document):
    (node,) = nodes_of(document, "GlobalAveragePool")
    node.op_type = "GlobalMaxPool"
    return node.name


@mutant("structure", "another opset")
def opset(document):
    document.opset_import[0].version += 1
    return "opset"


@mutant("structure", "another version of the file format", seen_as="IR versions")
def ir_version(document):
    document.ir_version += 1
    return "the model: ir_version"


@mutant("structure", "a text hidden at a node", unseen=FORMS)
def hidden_text(document):
    conv = a_conv(document)
    conv.doc_string = "payload"
    return f"{conv.name} (Conv): doc_string"


@mutant("structure", "bytes hidden in unknown fields of the file", unseen=FORMS)
def hidden_bytes(document):
    document.MergeFromString(bytes([0xFA, 0x7D, 5]) + b"hello")  # field 2015, which ONNX does not have
    return "unknown protobuf fields"


@mutant("structure", "a node hidden in a function of the file")
def hidden_function(document):
    conv = a_conv(document)
    body = [helper.make_node("Identity", ["x"], ["y"])]
    opsets = [helper.make_opsetid("", document.opset_import[0].version)]
    document.functions.append(helper.make_function("site", "Pass", ["x"], ["y"], body, opsets))
    document.opset_import.append(helper.make_opsetid("site", 1))
    insert(document, conv.output[0], make("Pass", [conv.output[0]], f"{conv.name}.passed", domain="site"))
    return f"{conv.name}.passed"


@mutant("structure", "a node hidden in a subgraph")
def hidden_subgraph(document):
    conv = a_conv(document)
    always = constant(document, "always", np.array(True))
    kind = helper.np_dtype_to_tensor_dtype(np.dtype(numpy_type(document, conv.output[0])))
    branches = [
        helper.make_graph(
            [helper.make_node("Identity", [conv.output[0]], [f"{conv.name}.{name}"])],
            name,
            [],
            [helper.make_tensor_value_info(f"{conv.name}.{name}", kind, None)],
        )
        for name in ("first", "second")
    ]
    node = make("If", [always], f"{conv.name}.chosen", then_branch=branches[0], else_branch=branches[1])
    insert(document, conv.output[0], node)
    return f"{conv.name}.chosen"


def _again(conv, suffix):
    """The same conv once more."""
    twin = onnx.NodeProto()
    twin.CopyFrom(conv)
    twin.name = twin.output[0] = f"{conv.name}.{suffix}"
    return twin


def _before(document, node, *others):
    """Put further nodes in front of one that is there."""
    at = next(index for index, one in enumerate(document.graph.node) if one.name == node.name)
    for offset, other in enumerate(others):
        document.graph.node.insert(at + offset, other)


def _features_concat(document):
    """The Concat of maps; graphs with open sizes also put sizes together."""
    return next(node for node in nodes_of(document, "Concat") if len(node.input) > 3)


def _padded(document):
    """A conv with explicit padding and a stride of 1 in the middle of the network."""
    found = [
        node
        for node in nodes_of(document, "Conv")
        if any(attribute(node, "pads") or []) and attribute(node, "strides") == [1, 1]
    ]
    return found[len(found) // 2]
