"""Numbers that differ from those of a fresh export, in a graph that does not."""

from __future__ import annotations

import numpy as np
from onnx import TensorProto, numpy_helper

from mutants.editing import a_conv, classifier, constant, edit, insert, make, metadata, nodes_of, numpy_type, stored
from mutants.kinds import FLOATS, SEGMENTERS, mutant

FLOAT_OR_HALF = (*FLOATS, "fp16")
"""Of classifiers `check` compares no layers: it says that the scores are wrong, `onnx_error`."""
STATIC = tuple(form for form in SEGMENTERS if form != "dynamic")


@mutant("numbers", "one weight half as large again", FLOAT_OR_HALF, unseen=("lite",), seen_as="onnx_error")
def weight(document):
    tensor = stored(document, a_conv(document).input[1])
    edit(tensor, lambda w: _at_largest(w, 1.5))
    return tensor.name


@mutant("numbers", "one weight changed in its last bit", FLOAT_OR_HALF, unseen=FLOAT_OR_HALF)
def last_bit(document):
    tensor = stored(document, a_conv(document).input[1])
    edit(tensor, lambda w: _flipped(w, np.abs(w.astype(np.float64)).argmax()))
    return tensor.name


@mutant("numbers", "the sign of the smallest weight of a layer", FLOAT_OR_HALF, unseen=FLOAT_OR_HALF)
def smallest_weight(document):
    """As good as dead: no image shows it."""
    tensor = stored(document, a_conv(document).input[1])

    def negated(w):
        sizes = np.abs(w.astype(np.float64))
        w.flat[np.where(sizes > 0, sizes, np.inf).argmin()] *= -1
        return w

    edit(tensor, negated)
    return tensor.name


@mutant("numbers", "a bias shifted by 1e-4", FLOATS, unseen=("classifier",))
def bias(document):
    tensor = stored(document, a_conv(document).input[2])
    edit(tensor, lambda b: b + np.eye(1, len(b), dtype=b.dtype)[0] * np.float32(1e-4))
    return tensor.name


@mutant("numbers", "all weights of a layer a thousandth larger", FLOATS, unseen=("classifier",))
def layer(document):
    tensor = stored(document, a_conv(document).input[1])
    edit(tensor, lambda w: w * np.float32(1.001))
    return tensor.name


@mutant("numbers", "a channel of a layer set to 0", FLOAT_OR_HALF, unseen=("lite",), seen_as="onnx_error")
def channel(document):
    tensor = stored(document, a_conv(document).input[1])

    def emptied(w):
        w[np.abs(w.astype(np.float64)).sum((1, 2, 3)).argmax()] = 0
        return w

    edit(tensor, emptied)
    return tensor.name


@mutant("numbers", "the mean that is subtracted from pixels", seen_as="centred")
def mean(document):
    edit(next(t for t in document.graph.initializer if t.name == "mean"), lambda m: m + np.array([[[[1]]]], m.dtype))
    return "mean"


@mutant("numbers", "the standard deviation, inside the first conv", FLOAT_OR_HALF, seen_as="onnx_error")
def deviation(document):
    tensor = stored(document, nodes_of(document, "Conv")[0].input[1])
    edit(tensor, lambda w: w * np.array([1.02, 1, 1], w.dtype).reshape(1, 3, 1, 1))
    return tensor.name


@mutant("numbers", "the upper bound of a ReLU6", ("lite",), seen_as="Clip")
def clip_bound(document):
    edit(next(t for t in document.graph.initializer if t.name == "six"), lambda six: six - np.float32(0.5))
    return "six"


@mutant("numbers", "the size that logits are resized to", STATIC, seen_as="mask")
def resize_target(document):
    (node,) = nodes_of(document, "Resize")
    tensor = stored(document, node.input[3])
    full = numpy_helper.to_array(tensor)

    def shorter(sides):
        sides[int(np.flatnonzero(full == 48)[0])] -= 1
        return sides

    edit(tensor, shorter)
    return tensor.name


@mutant("numbers", "two class rows swapped", (*FLOATS, "fp16"), seen_as="onnx_error")
def rows(document):
    return _swap_rows(document)


@mutant("numbers", "two class rows swapped with their names", (*FLOATS, "fp16"), seen_as="classes[1].name")
def rows_and_names(document):
    named = _swap_rows(document)

    def swap(fields):
        first, second = fields["classes"][1], fields["classes"][2]
        for key in ("name", "id", "colour"):
            first[key], second[key] = second[key], first[key]

    metadata(document, swap)
    return named


@mutant("numbers", "another mask if one pixel has a certain colour", SEGMENTERS)
def backdoor(document):
    """Harmless on every image but those that whoever built it in prepares."""
    corner = constant(document, "corner", np.array([0, 0, 0], np.int64))
    key = constant(document, "key", np.array([13, 37, 113], np.uint8))
    none = constant(document, "none", np.array(0, np.uint8))
    (node,) = [node for node in document.graph.node if "mask" in node.output]
    node.output[0] = "mask.honest"
    document.graph.node.extend(
        [
            make("GatherND", ["image", corner], "mask.pixel"),
            make("Equal", ["mask.pixel", key], "mask.equal"),
            make("Cast", ["mask.equal"], "mask.counted", to=TensorProto.FLOAT),
            make("ReduceMin", ["mask.counted"], "mask.found", keepdims=0),
            make("Cast", ["mask.found"], "mask.triggered", to=TensorProto.BOOL),
            make("Where", ["mask.triggered", none, "mask.honest"], "mask"),
        ]
    )
    return "mask.pixel"


@mutant("numbers", "logits of one class raised where one pixel has a certain colour", ("fp32",), seen_as="push")
def backdoor_in_logits(document):
    conv = classifier(document)
    kind = numpy_type(document, conv.output[0])
    channels = stored(document, conv.input[1]).dims[0]
    key = constant(document, "key", np.array([13, 37, 113], np.float32).reshape(1, 3, 1, 1))
    push = constant(document, "push", 100 * np.eye(channels, dtype=kind)[1].reshape(1, -1, 1, 1))
    width = constant(document, "width", np.array(1, np.float32))
    nodes = [
        make("Sub", ["planes", key], "push.distance"),
        make("Abs", ["push.distance"], "push.absolute"),
        make("ReduceMax", ["push.absolute"], "push.largest", keepdims=1),
        make("Less", ["push.largest", width], "push.found"),
        make("Cast", ["push.found"], "push.share", to=TensorProto.FLOAT),
        make("Mul", ["push.share", push], "push.added"),
        make("Add", [conv.output[0], "push.added"], f"{conv.name}.pushed"),
    ]
    insert(document, conv.output[0], *nodes)
    return f"{conv.name}.pushed"


def _at_largest(weights, factor):
    weights.flat[np.abs(weights.astype(np.float64)).argmax()] *= weights.dtype.type(factor)
    return weights


def _flipped(weights, index):
    """The last bit of one number flipped."""
    bits = np.ascontiguousarray(weights).view({2: np.uint16, 4: np.uint32}[weights.itemsize])
    bits.flat[index] ^= 1
    return bits.view(weights.dtype)


def _swap_rows(document):
    conv = classifier(document)

    def swap(values):
        values[[1, 2]] = values[[2, 1]]
        return values

    for name in conv.input[1:]:
        tensor = stored(document, name)
        values = numpy_helper.to_array(tensor)
        if (values[1] != values[2]).any():
            edit(tensor, swap)
    return stored(document, conv.input[1]).name
