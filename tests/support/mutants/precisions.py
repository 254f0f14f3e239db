"""Graphs that are not in the precision that they claim, or got there in another way."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import onnx
from onnx import TensorProto, numpy_helper

from mutants.editing import a_conv, constant, described, edit, insert, interface, make, maker, nodes_of, stored
from mutants.kinds import mutant

CONVERSION_KEY = "rcil.conversion"
INT8 = ("int8", "qdq")


@mutant("precision", "an fp32 graph called int8", ("fp32",), seen_as="labelled")
def called_int8(document):
    interface(document, lambda fields: fields.update(precision="int8"))
    return CONVERSION_KEY


@mutant("precision", "an fp32 graph called fp16", ("fp32", "dynamic", "lite"), seen_as="labelled")
def called_fp16(document):
    interface(document, lambda fields: fields.update(precision="fp16"))
    return CONVERSION_KEY


@mutant("precision", "an fp16 graph called fp32", ("fp16",), seen_as="labelled")
def called_fp32(document):
    interface(document, lambda fields: fields.update(precision="fp32"))
    return CONVERSION_KEY


@mutant("precision", "no record of the conversion", ("fp16", *INT8), unseen=("fp16",))
def no_record(document):
    kept = [entry for entry in document.metadata_props if entry.key != CONVERSION_KEY]
    entries = [onnx.StringStringEntryProto(key=entry.key, value=entry.value) for entry in kept]
    del document.metadata_props[:]
    document.metadata_props.extend(entries)
    return CONVERSION_KEY


@mutant("precision", "a node that the record calls fp32", ("fp16", *INT8), unseen=("fp16",))
def recorded_nodes(document):
    conv = a_conv(document)
    described(document, CONVERSION_KEY, lambda record: record["kept_fp32"].update({conv.name: "sensitive"}))
    return conv.name


@mutant("precision", "a range in the record", INT8)
def recorded_range(document):
    conv = a_conv(document)

    def widen(record):
        record["ranges"][conv.name] = [2 * end for end in record["ranges"][conv.name]]

    described(document, CONVERSION_KEY, widen)
    return conv.name


@mutant("precision", "a range in the record, and the scales that follow from it", INT8)
def recorded_range_and_scales(document):
    """The file is what its record says; only measuring again shows that no image has such values."""
    name = recorded_range(document)
    scale = _scale_of(document, name)
    edit(scale, lambda s: s * np.float32(2))
    return name


@mutant("precision", "the bits of weights in the record", INT8)
def recorded_bits(document):
    described(document, CONVERSION_KEY, lambda record: record.update(weight_bits=15 - record["weight_bits"]))
    return ".weight"


@mutant("precision", "the version of rcil in the record", ("fp16", *INT8), unseen=("fp16", *INT8))
def recorded_version(document):
    described(document, CONVERSION_KEY, lambda record: record["versions"].update(rcil="9.9"))
    return f"{CONVERSION_KEY}.versions.rcil"


@mutant("precision", "the images in the record", ("fp16", *INT8), unseen=("fp16",), seen_as="int8_ranges")
def recorded_images(document):
    described(document, CONVERSION_KEY, lambda record: record["images"].update(seed=99))
    return CONVERSION_KEY


@mutant("precision", "half-precision weights rounded twice", ("fp16",), unseen=("fp16",))
def rounded_twice(document):
    tensor = stored(document, a_conv(document).input[1])
    edit(tensor, lambda w: w.astype(np.float32).astype(ml_dtypes.bfloat16).astype(np.float16))
    return tensor.name


@mutant("precision", "a conv silently in fp32", ("fp16",), unseen=("fp16",))
def conv_in_fp32(document):
    conv = a_conv(document)
    for name in conv.input[1:]:
        tensor = stored(document, name)
        values = numpy_helper.to_array(tensor).astype(np.float32)
        tensor.CopyFrom(numpy_helper.from_array(values, tensor.name))
    wide = make("Cast", [conv.input[0]], f"{conv.name}.wide", to=TensorProto.FLOAT)
    narrow = make("Cast", [conv.output[0]], f"{conv.name}.narrow", to=TensorProto.FLOAT16)
    insert(document, conv.output[0], narrow)
    at = next(index for index, node in enumerate(document.graph.node) if node.name == conv.name)
    document.graph.node[at].input[0] = wide.output[0]
    document.graph.node.insert(at, wide)
    return f"{conv.name}.wide"


@mutant("precision", "an int8 conv silently in fp32", INT8)
def int8_conv_in_fp32(document):
    """Weights dequantised beforehand, and the input as it is before quantisation."""
    conv = _quantised_conv(document)
    tensor, scale = stored(document, conv.input[1]), _weight_scale(document, conv)
    steps = numpy_helper.to_array(scale).reshape(-1, 1, 1, 1)
    values = (numpy_helper.to_array(tensor).astype(np.float32) * steps).astype(np.float32)
    conv.input[1] = constant(document, f"{conv.name}.plain", values)
    return f"{conv.name} (Conv): input 1"


@mutant("precision", "the scale of an activation doubled", INT8)
def activation_doubled(document):
    return _scaled_activation(document, 2)


@mutant("precision", "the scale of an activation four times as large", INT8)
def activation_fourfold(document):
    return _scaled_activation(document, 4)


@mutant("precision", "the scale of an activation halved", INT8)
def activation_halved(document):
    return _scaled_activation(document, 0.5)


@mutant("precision", "the scales of a layer's weights 1.3 times as large", INT8)
def weight_scales(document):
    scale = _weight_scale(document, _quantised_conv(document))
    edit(scale, lambda s: s * np.float32(1.3))
    return scale.name


@mutant("precision", "quantised weights a step larger", INT8)
def weight_steps(document):
    tensor = stored(document, _quantised_conv(document).input[1])
    edit(tensor, lambda w: np.where(np.abs(w.astype(np.int32)) < 60, w + 1, w))
    return tensor.name


@mutant("precision", "the zero point of an activation", INT8)
def zero_point(document):
    node = maker(document, _quantised_conv(document).input[0])
    tensor = next(t for t in document.graph.initializer if t.name == node.input[2])
    edit(tensor, lambda z: z + np.array(3, z.dtype))
    return tensor.name


def _quantised_conv(document):
    """A conv in the middle whose input and weights are quantised."""
    found = [
        node
        for node in nodes_of(document, "Conv")
        if all(
            (made := maker(document, name)) is not None and made.op_type == "DequantizeLinear"
            for name in node.input[:2]
        )
    ]
    return found[len(found) // 2]


def _weight_scale(document, conv):
    node = maker(document, conv.input[1])
    return next(t for t in document.graph.initializer if t.name == node.input[1])


def _scaled_activation(document, factor):
    node = maker(document, _quantised_conv(document).input[0])
    tensor = next(t for t in document.graph.initializer if t.name == node.input[1])
    edit(tensor, lambda s: s * np.float32(factor))
    return tensor.name


def _scale_of(document, value):
    """The scale with which a value, or the activation behind it, is quantised."""
    (node,) = [n for n in nodes_of(document, "QuantizeLinear") if n.input[0] == value][:1] or [
        n
        for n in nodes_of(document, "QuantizeLinear")
        if (made := maker(document, n.input[0])) is not None and value in made.input
    ][:1]
    return next(t for t in document.graph.initializer if t.name == node.input[1])
