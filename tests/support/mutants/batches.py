"""Graphs that are right for single images of the usual size."""

from __future__ import annotations

import numpy as np
from onnx import numpy_helper

from mutants.editing import constant, insert, make, nodes_of
from mutants.kinds import mutant


@mutant("batch", "the images of a batch in reverse", ("dynamic",))
def reversed_rows(document):
    ends = (("starts", -1), ("ends", -(2**31)), ("axes", 0), ("steps", -1))
    inputs = [constant(document, f"reverse.{name}", np.array([value], np.int64)) for name, value in ends]
    insert(document, "planes", make("Slice", ["planes", *inputs], "planes.reversed"))
    return "planes.reversed"


@mutant("batch", "each image mixed with the mean of its batch", ("dynamic",))
def averaged_rows(document):
    axis = constant(document, "batch_axis", np.array([0], np.int64))
    half = constant(document, "half", np.array(0.5, np.float32))
    nodes = [
        make("ReduceMean", ["centred", axis], "centred.mean", keepdims=1),
        make("Sub", ["centred.mean", "centred"], "centred.away"),
        make("Mul", ["centred.away", half], "centred.share"),
        make("Add", ["centred", "centred.share"], "centred.mixed"),
    ]
    insert(document, "centred", *nodes)
    return "centred.mixed"


@mutant("batch", "the images of a batch moved by one", ("dynamic",))
def rolled_rows(document):
    zero, one, end = (
        constant(document, f"roll.{name}", np.array([value], np.int64))
        for name, value in (("zero", 0), ("one", 1), ("end", 2**31))
    )
    nodes = [
        make("Slice", ["planes", one, end, zero], "planes.rest"),
        make("Slice", ["planes", zero, one, zero], "planes.first"),
        make("Concat", ["planes.rest", "planes.first"], "planes.rolled", axis=0),
    ]
    insert(document, "planes", *nodes)
    return "planes.rolled"


@mutant("size", "the usual size baked in", ("dynamic",))
def baked_size(document):
    """The logits are resized to the usual height and width, whatever the image has."""
    (resize,) = nodes_of(document, "Resize")
    sizes = next(node for node in document.graph.node if resize.input[3] in node.output)
    sides = next(node for node in document.graph.node if node.name == "sides")
    at = numpy_helper.to_array(next(t for t in document.graph.initializer if t.name == sides.input[1]))
    usual = constant(document, "usual", np.array({3: [2, 48, 64], 2: [48, 64]}[len(at)], np.int64))
    sizes.input[list(sizes.input).index("sides")] = usual
    return sizes.name


@mutant("size", "sizes rounded down to even numbers", ("dynamic",))
def even_sizes(document):
    two = constant(document, "two", np.array([2], np.int64))
    nodes = [make("Div", ["sides", two], "sides.half"), make("Mul", ["sides.half", two], "sides.even")]
    insert(document, "sides", *nodes)
    return "sides.even"


@mutant("size", "a mean over as many cells as the usual size has", ("dynamic",))
def baked_pool(document):
    (node,) = nodes_of(document, "GlobalAveragePool")
    node.op_type = "AveragePool"
    node.attribute.extend(make("AveragePool", [], "x", kernel_shape=[3, 4], strides=[3, 4]).attribute)
    return node.name
