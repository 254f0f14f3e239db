"""Computing the nodes of a graph that depend on constants alone, such as the standardisation of a kernel."""

from __future__ import annotations

import numpy as np
import onnx
from onnx import helper, numpy_helper
from onnx.reference import ReferenceEvaluator

from rcil.core.errors import RcilError, first_line
from rcil_export.graph.nodes import constants_of, needed_values, replace_nodes

RANDOM = frozenset(
    ("RandomNormal", "RandomNormalLike", "RandomUniform", "RandomUniformLike", "Multinomial", "Bernoulli")
)


def compute_constants(document: onnx.ModelProto) -> None:
    """Replace nodes without other inputs than constants by their values, and leave out constants that nobody reads.

    ONNX's own reference computes them, so that the values are the same on every machine.
    """
    graph, known = document.graph, set(constants_of(document))
    left = {output.name for output in graph.output}
    fixed: list[onnx.NodeProto] = []
    rest: list[onnx.NodeProto] = []
    for node in graph.node:
        constant = all(name in known for name in node.input if name)
        constant &= node.op_type not in RANDOM and not left.intersection(node.output)
        (fixed if constant else rest).append(node)
        if constant:
            known.update(node.output)
    if fixed:
        made = {name for node in fixed for name in node.output}
        wanted = sorted(made & {name for node in rest for name in node.input})
        graph.initializer.extend(_values(document, fixed, wanted))
        replace_nodes(document, rest)


def _values(document: onnx.ModelProto, nodes: list[onnx.NodeProto], wanted: list[str]) -> list[onnx.TensorProto]:
    """What these nodes write, as constants."""
    needed = needed_values(nodes, wanted)
    outputs = [onnx.ValueInfoProto(name=name) for name in wanted]
    part = helper.make_graph(
        [node for node in nodes if needed.intersection(node.output)],
        "constants",
        [],
        outputs,
        [tensor for tensor in document.graph.initializer if tensor.name in needed],
    )
    try:
        values = ReferenceEvaluator(helper.make_model(part, opset_imports=document.opset_import)).run(None, {})
    except Exception as error:  # the reference raises exceptions of several kinds
        raise RcilError(
            f"constants of the graph cannot be computed: {type(error).__name__}: {first_line(error)}",
            "Everything but ONNX works with this network.",
        ) from error
    return [numpy_helper.from_array(np.asarray(value), name) for name, value in zip(wanted, values, strict=True)]
