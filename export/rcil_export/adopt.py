"""ONNX files of other programs: put our pre- and postprocessing and a description around a graph, so that everything
that reads our files reads it too. There is no torch code to such a graph, so that it cannot be trained or folded.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import AttributeProto, TensorProto, helper, numpy_helper, version_converter
from pydantic import ValidationError

from rcil import __version__
from rcil.core.errors import ConfigError, first_line
from rcil.core.files import sha256_of
from rcil.model.adopted import AdoptedGraph
from rcil.model.metadata import IMAGENET_MEAN, IMAGENET_STD, LineageEntry, Metadata, class_table
from rcil_export.graph.description import first_problem
from rcil_export.graph.export import make_document
from rcil_export.graph.graft import graft
from rcil_export.graph.interface import INPUT_NAME, OPSETS, Interface, Output
from rcil_export.graph.nodes import NodeList, constants_of, needed_values
from rcil_export.graph.onnx_file import load_document, write_onnx
from rcil_export.graph.postprocessing import write_outputs, write_rows
from rcil_export.graph.preprocessing import write_input
from rcil_export.graph.shapes import InputShape
from rcil_export.runtime.sessions import SessionError, open_session

OUTPUTS: tuple[Output, ...] = ("mask", "confidence")
TOLERANCE = 1e-4
"""Largest difference of a probability between the graph and the written file."""
SMALLEST = 1e-12
"""Probabilities below this become it before their logarithm is taken."""
OPSET_HINT = f"Export it again for an opset from {OPSETS[0]} to {OPSETS[1]}."


@dataclass(frozen=True)
class GraphInput:
    """What the user knows about a graph that the file does not say."""

    names: Sequence[str]
    """Class names in the order of its output channels, background first."""
    size: tuple[int, int] | None = None
    """Height and width of the input, for graphs that take several."""
    mean: tuple[float, ...] = IMAGENET_MEAN
    std: tuple[float, ...] = IMAGENET_STD
    """The graph is given (x / 255 - mean) / std."""
    colour_order: str = "RGB"
    logits: str | None = None
    """Name of the output to use; None: the first map with a channel per class."""


def adopt(source: Path, output: Path, given: GraphInput) -> Metadata:
    """Write the ONNX file `output` around the graph of `source`; returns the description in it.

    The graph must take one float image [N, 3, H, W] and give scores [N, classes, h, w]: logits, or probabilities, of
    which the logarithm is taken. The masks of the written file are compared with those of the graph before it is
    written.
    """
    body = load_document(source)
    metadata = _metadata(source, given)
    _check_nodes(body, source)
    body = _at_known_opset(body, source)
    shape = _input_shape(body, given.size, source)
    image = np.random.default_rng(0).integers(0, 256, (shape.batch.low, *_sides(shape), 3), np.uint8)
    name, scores = _scores(body, _normalised(image, given), given, source)
    architecture = AdoptedGraph(graph=source.name, graph_sha256=sha256_of(source), logits=name)
    metadata = metadata.model_copy(update={"architecture": architecture})
    document = _wrapped(body, name, scores, metadata, shape)
    _check_same(document, image, scores, source)
    write_onnx(output, document)
    return metadata


def _at_known_opset(document: onnx.ModelProto, source: Path) -> onnx.ModelProto:
    """The graph at an opset that we write; older ones are converted."""
    opsets = {entry.domain: entry.version for entry in document.opset_import}
    version = opsets.get("", opsets.get("ai.onnx", 0))
    if version > OPSETS[1]:
        raise ConfigError(f"{source} has opset {version}, which is too new", OPSET_HINT)
    if version >= OPSETS[0]:
        return document
    try:
        return version_converter.convert_version(document, OPSETS[0])
    except Exception as error:  # the converter raises exceptions of several kinds
        raise ConfigError(
            f"{source} has opset {version} and cannot be converted: {first_line(error)}", OPSET_HINT
        ) from error


def _check_nodes(document: onnx.ModelProto, source: Path) -> None:
    """Raise for graphs that contain more than nodes of ONNX itself."""
    if document.functions:
        raise ConfigError(f"{source} defines the function {document.functions[0].name}", "Export it without functions.")
    for node in document.graph.node:
        if node.domain not in ("", "ai.onnx"):
            raise ConfigError(
                f"{source}: the node {node.name or node.output[0]} is a {node.domain}.{node.op_type}, not of ONNX",
                "Export the network with operators of ONNX alone.",
            )
        if any(attribute.type in (AttributeProto.GRAPH, AttributeProto.GRAPHS) for attribute in node.attribute):
            raise ConfigError(
                f"{source}: the node {node.name or node.output[0]} is a {node.op_type}, which contains another graph",
                "Export the network without control flow.",
            )


def _input_shape(document: onnx.ModelProto, size: tuple[int, int] | None, source: Path) -> InputShape:
    """The one size that the new file takes."""
    constants = constants_of(document)
    inputs = [value for value in document.graph.input if value.name not in constants]
    if len(inputs) != 1:
        raise ConfigError(
            f"{source} has {len(inputs)} inputs: {', '.join(value.name for value in inputs)}", "It must take one image."
        )
    kind = inputs[0].type.tensor_type
    sides = [side.dim_value if side.HasField("dim_value") else 0 for side in kind.shape.dim]
    if kind.elem_type != TensorProto.FLOAT or len(sides) != 4 or sides[1] not in (0, 3):
        found = f"{TensorProto.DataType.Name(kind.elem_type)} {sides}"
        raise ConfigError(f"the input of {source} is {found}, with 0 for any side", "It must be float [N, 3, H, W].")
    batch, _, height, width = sides
    if size is not None and any(side not in (0, wanted) for side, wanted in zip((height, width), size, strict=True)):
        raise ConfigError(f"{source} takes {height}x{width} only", "Leave out --size.")
    height, width = size or (height, width)
    if not height or not width:
        raise ConfigError(f"{source} takes images of several sizes", "Choose one with --size HxW.")
    return InputShape.of(height, width, batch or 1)


def _sides(shape: InputShape) -> tuple[int, int]:
    return shape.usual[1], shape.usual[2]


def _normalised(image: NDArray[np.uint8], given: GraphInput) -> NDArray[np.float32]:
    """What the graph reads for images [N, H, W, 3] in its colour order."""
    mean, std = np.array(given.mean, np.float64), np.array(given.std, np.float64)
    return ((image / 255 - mean) / std).transpose(0, 3, 1, 2).astype(np.float32)


def _scores(
    document: onnx.ModelProto, image: NDArray[np.float32], given: GraphInput, source: Path
) -> tuple[str, NDArray[np.float32]]:
    """Name and values of the output with a channel per class, for one batch."""
    constants = constants_of(document)
    read = next(value.name for value in document.graph.input if value.name not in constants)
    try:
        session = open_session(document, name=str(source))
        names = [value.name for value in session.get_outputs()]
        values = dict(zip(names, session.run(names, {read: image}), strict=True))
    except SessionError:
        raise
    except Exception as error:  # ONNX Runtime's exceptions have no common base class
        raise ConfigError(
            f"{source} does not run on images {list(image.shape)}: {first_line(error)}", "Choose another --size."
        ) from error
    if given.logits is not None and given.logits not in values:
        raise ConfigError(f"{source} has no output '{given.logits}'", f"Its outputs: {', '.join(names)}.")
    classes = len(given.names)
    for name in names if given.logits is None else [given.logits]:
        value = np.asarray(values[name])
        if value.dtype == np.float32 and value.ndim == 4 and value.shape[1] == classes:
            return name, value
    shown = ", ".join(f"{name} {getattr(value, 'dtype', '')} {list(np.shape(value))}" for name, value in values.items())
    raise ConfigError(
        f"{source} gives {shown}, and {classes} classes are named",
        "An output must be float [N, classes, H, W]; name a class for each of its channels, background first.",
    )


def _metadata(source: Path, given: GraphInput) -> Metadata:
    """The description of the new file, before it is known which output is used."""
    entry = LineageEntry(step=0, source="adopt", parent_sha256=sha256_of(source), versions={"rcil": __version__})
    try:
        return Metadata(
            architecture=AdoptedGraph(graph=source.name, graph_sha256=sha256_of(source), logits=given.logits or ""),
            classes=class_table([list(given.names)]),
            mean=given.mean,  # type: ignore[arg-type]
            std=given.std,  # type: ignore[arg-type]
            colour_order=given.colour_order,  # type: ignore[arg-type]
            lineage=(entry,),
        )
    except ValidationError as error:
        raise ConfigError(first_problem(error), "Correct the value.") from error


def _wrapped(
    body: onnx.ModelProto, output: str, scores: NDArray[np.float32], metadata: Metadata, shape: InputShape
) -> onnx.ModelProto:
    """The new graph: image, normalisation, the nodes that lead to the scores, mask and confidence."""
    opset = next(entry.version for entry in body.opset_import if entry.domain in ("", "ai.onnx"))
    interface = Interface(shape=shape, outputs=OUTPUTS, opset=opset)
    nodes = NodeList()
    image, scale = write_input(nodes, metadata, interface)
    assert scale is not None
    factor = nodes.constant("inverse_std", np.asarray(scale, np.float32).reshape(1, 3, 1, 1))
    image = nodes.add("Mul", [image, factor], "normalised")
    full = scores.shape[2:] == _sides(shape)
    first = "logits" if full else "scores"
    likely = _are_probabilities(scores)
    graft(nodes, _needed(body, output), image, "probabilities" if likely else first)
    if likely:
        clipped = nodes.add(
            "Max", ["probabilities", nodes.constant("smallest", np.array([SMALLEST], np.float32))], "clipped"
        )
        nodes.add("Log", [clipped], first)
    classes = len(metadata.classes)
    if full:
        write_rows(nodes, first, 1, classes, interface)
    else:
        write_outputs(nodes, first, classes, interface)
    return make_document(nodes, classes, metadata, interface)


def _needed(body: onnx.ModelProto, output: str) -> onnx.ModelProto:
    """The part of a graph that one output is computed from, with its `Constant` nodes as constants."""
    needed = needed_values(body.graph.node, [output])
    constants = constants_of(body)
    kept = [tensor for tensor in body.graph.initializer if tensor.name in needed]
    nodes = []
    for node in body.graph.node:
        if not needed.intersection(node.output):
            continue
        value = next((a for a in node.attribute if a.name in ("value", "value_float", "value_int")), None)
        listed = next((a for a in node.attribute if a.name in ("value_floats", "value_ints")), None)
        if node.op_type == "Constant" and (value is not None or listed is not None):
            kept.append(_tensor_of(value or listed, node.output[0]))
        else:
            nodes.append(node)
    inputs = [value for value in body.graph.input if value.name not in constants]
    outputs = [value for value in body.graph.output if value.name == output]
    return helper.make_model(helper.make_graph(nodes, "graph", inputs, outputs, kept))


def _tensor_of(attribute: AttributeProto | None, name: str) -> TensorProto:
    """The value of a `Constant` node as a constant of the graph."""
    assert attribute is not None
    value = helper.get_attribute_value(attribute)
    if isinstance(value, TensorProto):
        tensor = TensorProto()
        tensor.CopyFrom(value)
        tensor.name = name
        return tensor
    kind = np.float32 if "float" in attribute.name else np.int64
    return numpy_helper.from_array(np.asarray(value, kind), name)


def _are_probabilities(scores: NDArray[np.float32]) -> bool:
    """Whether the scores of every pixel are shares of 1."""
    return bool(scores.min() >= 0 and np.allclose(scores.sum(axis=1), 1, atol=1e-3))


def _check_same(document: onnx.ModelProto, image: NDArray[np.uint8], scores: NDArray[np.float32], source: Path) -> None:
    """Raise unless the new graph gives the probability of the chosen class that follows from the scores.

    Only graphs whose scores have the size of the image are compared; resized ones differ near edges.
    """
    session = open_session(document, name=f"the graph around {source}")
    mask, confidence = session.run(list(OUTPUTS), {INPUT_NAME: image})
    if scores.shape[2:] != image.shape[1:3]:
        return
    shares = scores
    if not _are_probabilities(scores):
        shares = np.exp(scores - scores.max(axis=1, keepdims=True))
        shares /= shares.sum(axis=1, keepdims=True)
    chosen = np.take_along_axis(shares, np.asarray(mask, np.int64)[:, None], axis=1)[:, 0]
    worst = float(max(np.abs(chosen - confidence).max(), np.abs(chosen - shares.max(axis=1)).max()))
    if worst > TOLERANCE:
        raise ConfigError(
            f"{source} computes something else when it is wrapped: probabilities differ by {worst:.1e}",
            "Export it again for one size and batch, and without control flow.",
        )
