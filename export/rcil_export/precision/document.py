"""What every conversion of a graph needs: its description, and a session to run it."""

from __future__ import annotations

import onnx
import onnxruntime as ort

from rcil.checkpoint.header import METADATA_KEY
from rcil.checkpoint.metadata import Metadata
from rcil.errors import ConfigError
from rcil_export.interface import INTERFACE_KEY, Interface, Precision
from rcil_export.onnx_graph.export import describe
from rcil_export.onnx_graph.lint import check_graph


def description_of(document: onnx.ModelProto) -> tuple[Metadata, Interface]:
    """Both descriptions that `describe` stored."""
    texts = {entry.key: entry.value for entry in document.metadata_props}
    return Metadata.model_validate_json(texts[METADATA_KEY]), Interface.model_validate_json(texts[INTERFACE_KEY])


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


def session_of(document: onnx.ModelProto, *, exact: bool = False, threads: int = 1) -> ort.InferenceSession:
    """A session on the CPU.

    Args:
        document: The graph.
        exact: Run it node by node as it is written; otherwise ONNX Runtime may fuse and reorder.
        threads: For the work inside a node.
    """
    options = ort.SessionOptions()
    options.intra_op_num_threads = threads
    options.inter_op_num_threads = 1
    options.log_severity_level = 3
    if exact:
        options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    return ort.InferenceSession(document.SerializeToString(), options, providers=["CPUExecutionProvider"])
