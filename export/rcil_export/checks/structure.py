"""Whether an ONNX file is the plain network that it claims to be, found without running it."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from pathlib import Path

import onnx
import torch
from onnx import TensorProto

from rcil.core.errors import RcilError, first_line
from rcil.core.files import sha256_of
from rcil.model.architecture import Architecture
from rcil.model.metadata import Metadata
from rcil.nn.build import build_any
from rcil_export.certificate.difference import first_difference
from rcil_export.certificate.graph import dims_of, kind_name, type_and_dims
from rcil_export.certificate.twin import plain_network
from rcil_export.checks.description_match import description_result
from rcil_export.checks.reduction import reduce
from rcil_export.checks.result import Item, Result
from rcil_export.checks.tensor_precision import precision_item, precision_of
from rcil_export.graph.description import parse_any_description
from rcil_export.graph.export import to_onnx
from rcil_export.graph.interface import INPUT_NAME, GraphInterface
from rcil_export.graph.lint import invalid_onnx, lint
from rcil_export.graph.onnx_file import load_document, texts_of
from rcil_export.graph.postprocessing import output_dims, output_type
from rcil_export.graph.preprocessing import input_dims
from rcil_export.resources import part

Axes = list[int | str]
MAX_NAMED = 5
"""Problems that one line lists; the JSON document has all of them."""
VALID = ("onnx", "Valid ONNX", "accepted by ONNX's own checker")
PLAIN = ("plain_graph", "Same graph as the plain network", "the network that the architecture describes, node for node")
"""Key, title and requirement of an item."""


def check_document(
    graph: Path, checkpoint: Path, metadata: Metadata, *, kept: Collection[str] = ()
) -> tuple[Result, Result]:
    """Structure and description of an ONNX file, read back from the disk, against its checkpoint.

    Args:
        graph: The ONNX file.
        checkpoint: The checkpoint it was made from.
        metadata: The checkpoint's description.
        kept: Convs that the conversion left in fp32 on purpose.
    """
    with part("structure"):
        document = load_document(graph)
        found = parse_any_description(texts_of(document), graph)
        structure = structure_result(graph.name, document, *found, checkpoint=metadata, kept=kept)
        del document
    with part("description"):
        hashes = [sha256_of(checkpoint)]
        return structure, description_result(graph.name, found.metadata, checkpoint.name, metadata, hashes)


def structure_result(
    name: str,
    document: onnx.ModelProto,
    metadata: Metadata,
    interface: GraphInterface,
    *,
    checkpoint: Metadata | None = None,
    kept: Collection[str] = (),
) -> Result:
    """Everything that can be said about a file without running it.

    Args:
        name: Name of the file, for reports.
        document: As read from the file.
        metadata: As in the file.
        interface: As in the file.
        checkpoint: The description of the checkpoint that the file must be a form of; None: the file's own.
        kept: Convs that the conversion left in fp32 on purpose.
    """
    described = checkpoint or metadata
    own = isinstance(described.architecture, Architecture)  # the certificate compares graphs of attached networks
    items = (
        _lint_item(document, interface),
        _guarded(VALID, lambda: _valid_item(document)),
        interface_item(document, interface, len(described.classes)),
        precision_item(interface.precision, precision_of(document, kept)),
        *([_guarded(PLAIN, lambda: plain_graph_item(document, described, interface))] if own else []),
    )
    return Result("structure", f"Structure of {name}", items)


def _guarded(texts: tuple[str, str, str], run: Callable[[], Item]) -> Item:
    """A failed item where a graph is so broken that libraries raise; their exceptions have no common base class."""
    key, title, required = texts
    try:
        return run()
    except RcilError as error:
        return Item(key, title, False, error.message, required)
    except Exception as error:
        return Item(key, title, False, f"cannot be read: {first_line(error)}", required)


def _lint_item(document: onnx.ModelProto, interface: GraphInterface) -> Item:
    problems = lint(document, interface)
    more = f"; and {len(problems) - MAX_NAMED} more" if len(problems) > MAX_NAMED else ""
    measured = "; ".join(problems[:MAX_NAMED]) + more if problems else f"{len(document.graph.node)} nodes"
    required = "nothing that costs time and is not the network"
    return Item("lint", "Nodes", not problems, measured, required, {"problems": problems})


def _valid_item(document: onnx.ModelProto) -> Item:
    key, title, required = VALID
    invalid = invalid_onnx(document)
    return Item(key, title, invalid is None, "it is" if invalid is None else invalid.strip().splitlines()[0], required)


def plain_graph_item(document: onnx.ModelProto, metadata: Metadata, interface: GraphInterface) -> Item:
    """The file, without the casts and pairs that its precision implies, against the plain network's graph.

    Args:
        document: Valid ONNX.
        metadata: Describes the network: backbone, head and classes.
        interface: What the file takes and gives.
    """
    key, title, required = PLAIN
    reduced = reduce(document, interface)
    plain = reduce(plain_document(metadata, interface), interface)
    difference = "; ".join(reduced.problems[:MAX_NAMED]) or first_difference(reduced.document, plain.document)
    nodes = len(reduced.document.graph.node)
    measured = difference or f"{nodes} nodes, all with the same op, attributes, wiring, types and shapes"
    if difference is None and reduced.casts + reduced.pairs:
        measured += f"; besides {reduced.casts} casts and {reduced.pairs} pairs that {interface.precision} needs"
    detail = {"nodes": nodes, "casts": reduced.casts, "pairs": reduced.pairs, "problems": list(reduced.problems)}
    return Item(key, title, difference is None, measured, required, detail)


def plain_document(metadata: Metadata, interface: GraphInterface) -> onnx.ModelProto:
    """The fp32 graph of the network that an architecture describes, with random weights.

    It never had two branches, unless the interface says that the file shows both on purpose.
    """
    exact = interface.model_copy(update={"precision": "fp32"})
    with torch.random.fork_rng(devices=[]):
        if interface.shows_branches:
            return to_onnx(build_any(metadata.architecture, metadata.names_by_step).eval(), metadata, exact)
        return to_onnx(plain_network(metadata).eval(), metadata, exact)


def interface_item(document: onnx.ModelProto, interface: GraphInterface, classes: int) -> Item:
    """Whether a graph has exactly the inputs and outputs that its interface states: names, element types and axes.

    Args:
        document: The graph.
        interface: As the file records it.
        classes: Class rows of the checkpoint that the file was made from.
    """
    kind = TensorProto.UINT8 if interface.input == "uint8" else TensorProto.FLOAT
    image = {INPUT_NAME: (int(kind), input_dims(interface.shape, interface))}
    outputs = {
        name: (output_type(name, classes), output_dims(name, classes, interface.shape)) for name in interface.outputs
    }
    problems = [
        *_differences("input", document.graph.input, image),
        *_differences("output", document.graph.output, outputs),
    ]
    values = [*document.graph.input, *document.graph.output]
    measured = "; ".join(problems) or ", ".join(
        f"{value.name} {type_and_dims(value.type.tensor_type.elem_type, dims_of(value))}" for value in values
    )
    required = f"exactly the input {INPUT_NAME} and the outputs {', '.join(interface.outputs)}, with their types"
    return Item("interface", "Inputs and outputs", not problems, measured, required, {"problems": problems})


def _differences(
    side: str, values: Sequence[onnx.ValueInfoProto], wanted: Mapping[str, tuple[int, Axes]]
) -> Iterator[str]:
    names = [value.name for value in values]
    for name in wanted:
        if name not in names:
            yield f"the {side} {name} is missing"
    for name in dict.fromkeys(names):
        if name not in wanted:
            yield f"the {side} {name} is not declared"
        if names.count(name) > 1:
            yield f"the {side} {name} occurs {names.count(name)} times"
    if set(names) == set(wanted) and len(names) == len(wanted) and names != list(wanted):
        yield f"the {side}s are in the order {', '.join(names)}, not {', '.join(wanted)}"
    for value in values:
        if value.name in wanted:
            kind, axes = wanted[value.name]
            found = value.type.tensor_type.elem_type
            if found != kind:
                yield f"the {side} {value.name} is {kind_name(found)}, not {kind_name(kind)}"
            if dims_of(value) != axes:
                yield f"the {side} {value.name} has the axes {dims_of(value)}, not {axes}"
