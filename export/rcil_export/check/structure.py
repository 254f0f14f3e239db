"""Whether an ONNX file is built like the plain network that it claims to be, whatever it computes on images."""

from __future__ import annotations

from collections.abc import Callable, Collection

import onnx
import torch

from rcil.checkpoint.metadata import ClassifierMetadata, Metadata
from rcil.classify.network import HeadSpec, build_classifier
from rcil.errors import RcilError
from rcil.nn.build import build, build_form, plain_twin
from rcil_export.certificate.difference import first_difference
from rcil_export.check.interface_match import interface_item
from rcil_export.check.reduction import reduce
from rcil_export.check.result import Item, Result
from rcil_export.check.tensor_precision import precision_item, precision_of
from rcil_export.classify_interface import ClassifierInterface
from rcil_export.interface import Interface
from rcil_export.onnx_graph.classify_export import classifier_to_onnx
from rcil_export.onnx_graph.export import to_onnx
from rcil_export.onnx_graph.lint import invalid_onnx, lint

MAX_NAMED = 5
"""Problems that one line names; the others are in the JSON."""


def structure_result(
    name: str,
    document: onnx.ModelProto,
    metadata: Metadata,
    interface: Interface | ClassifierInterface,
    *,
    checkpoint: Metadata | None = None,
    kept: Collection[str] = (),
) -> Result:
    """All that can be said about a file without running it.

    Args:
        name: Of the file, for reports.
        document: As read from the file.
        metadata: As in the file.
        interface: As in the file.
        checkpoint: The description of the checkpoint that the file must be a form of; None: the file's own.
        kept: Convs that the conversion left in fp32 on purpose.
    """
    described = checkpoint or metadata
    items = [
        _lint_item(document, interface),
        _guarded("onnx", "Valid ONNX", "what ONNX's own checker accepts", lambda: _valid_item(document)),
        interface_item(document, interface, len(described.classes)),
        precision_item(interface.precision, precision_of(document, kept)),
        _guarded(
            "plain_graph",
            PLAIN_TITLE,
            PLAIN_REQUIRED,
            lambda: plain_graph_item(document, described, interface),
        ),
    ]
    return Result("structure", f"Structure of {name}", tuple(items))


def _lint_item(document: onnx.ModelProto, interface: Interface | ClassifierInterface) -> Item:
    problems = lint(document, interface)
    more = f"; and {len(problems) - MAX_NAMED} more" if len(problems) > MAX_NAMED else ""
    measured = "; ".join(problems[:MAX_NAMED]) + more if problems else f"{len(document.graph.node)} nodes"
    required = "nothing that costs time and is not the network"
    return Item("lint", "Nodes", not problems, measured, required, {"problems": problems})


def _valid_item(document: onnx.ModelProto) -> Item:
    invalid = invalid_onnx(document)
    measured = "it is" if invalid is None else invalid.strip().splitlines()[0]
    return Item("onnx", "Valid ONNX", invalid is None, measured, "what ONNX's own checker accepts")


PLAIN_TITLE = "Same graph as the plain network"
PLAIN_REQUIRED = "the network that the architecture describes, node for node"


def plain_graph_item(document: onnx.ModelProto, metadata: Metadata, interface: Interface | ClassifierInterface) -> Item:
    """The file, without the casts and pairs that its precision implies, against the plain network's graph.

    Args:
        document: Valid ONNX.
        metadata: Describes the network: backbone, head and classes.
        interface: What the file takes and gives.
    """
    reduced = reduce(document, interface)
    plain = reduce(plain_document(metadata, interface), interface)
    difference = "; ".join(reduced.problems[:MAX_NAMED]) or first_difference(reduced.document, plain.document)
    nodes = len(reduced.document.graph.node)
    measured = difference or f"{nodes} nodes, all with the same op, attributes, wiring, types and shapes"
    if difference is None and reduced.casts + reduced.pairs:
        measured += f"; besides {reduced.casts} casts and {reduced.pairs} pairs that {interface.precision} needs"
    detail = {"nodes": nodes, "casts": reduced.casts, "pairs": reduced.pairs, "problems": list(reduced.problems)}
    return Item("plain_graph", PLAIN_TITLE, difference is None, measured, PLAIN_REQUIRED, detail)


def plain_document(metadata: Metadata, interface: Interface | ClassifierInterface) -> onnx.ModelProto:
    """The fp32 graph of the network that an architecture describes, with random weights.

    It never had two branches, unless `interface.folded` says that the file shows both on purpose.
    """
    exact = interface.model_copy(update={"precision": "fp32"})
    with torch.random.fork_rng(devices=[]):
        if isinstance(metadata, ClassifierMetadata):
            assert isinstance(exact, ClassifierInterface)
            arch = metadata.architecture.replace(rc=None, folded=True, norm="batch")
            head = HeadSpec(metadata.head, metadata.proxies)
            model = build_classifier(arch, head, [[c.name for c in metadata.classes]]).eval()
            return classifier_to_onnx(model, metadata, exact)
        assert isinstance(exact, Interface)
        if not exact.folded:
            return to_onnx(build(metadata.architecture, metadata.names_by_step).eval(), metadata, exact)
        return to_onnx(plain_twin(build_form(metadata.architecture, metadata.names_by_step)).eval(), metadata, exact)


def _guarded(key: str, title: str, required: str, run: Callable[[], Item]) -> Item:
    """An item of its own for a graph so broken that the libraries raise; they share no root of their exceptions."""
    try:
        return run()
    except RcilError as error:
        return Item(key, title, False, error.message, required)
    except Exception as error:
        return Item(key, title, False, f"cannot be read: {str(error).strip().splitlines()[0]}", required)
