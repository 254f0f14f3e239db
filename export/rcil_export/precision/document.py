"""How every conversion of a graph begins and ends."""

from __future__ import annotations

import onnx

from rcil.core.errors import ConfigError
from rcil_export.graph.interface import Interface, Precision
from rcil_export.graph.lint import check_graph
from rcil_export.graph.onnx_file import describe, description_of


def fp32_interface(document: onnx.ModelProto, wanted: Precision) -> Interface:
    """The interface of a graph that is about to be converted, which must not have been converted before."""
    interface = description_of(document)[1]
    if interface.precision != "fp32":
        raise ConfigError(
            f"the graph is in {interface.precision} already, so it cannot become {wanted}",
            "Export the checkpoint in fp32 and convert that.",
        )
    return interface


def finish(document: onnx.ModelProto, precision: Precision) -> onnx.ModelProto:
    """Store the precision in the description and check the graph."""
    metadata, interface = description_of(document)
    interface = interface.model_copy(update={"precision": precision})
    describe(document, metadata, interface)
    check_graph(document, interface)
    return document
