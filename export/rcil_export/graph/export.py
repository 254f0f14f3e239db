"""A network and its description -> an ONNX model."""

from __future__ import annotations

import onnx
from onnx import TensorProto, helper

from rcil import __version__
from rcil.classify.network import ImageClassifier
from rcil.model.metadata import Metadata
from rcil.nn import Network, Segmenter
from rcil.nn.attached.network import AttachedNetwork
from rcil_export.graph.dynamo import write_attached
from rcil_export.graph.interface import INPUT_NAME, GraphInterface
from rcil_export.graph.lint import check_graph
from rcil_export.graph.nodes import NodeList
from rcil_export.graph.onnx_file import describe
from rcil_export.graph.postprocessing import output_dims, output_type, write_outputs, write_rows
from rcil_export.graph.preprocessing import input_dims, write_input
from rcil_export.graph.translate import Translator


def to_onnx(model: Network | ImageClassifier, metadata: Metadata, interface: GraphInterface) -> onnx.ModelProto:
    """The graph of `model` in evaluation mode, checked; always fp32, whatever `interface.precision` says.

    The same network, description and interface give the same bytes.

    Args:
        model: Folded, unless the interface of a segmenter says otherwise.
        metadata: Is stored in the file; its class table names the rows.
        interface: Inputs and outputs of the graph.
    """
    nodes = NodeList()
    if isinstance(model, AttachedNetwork):
        logits = write_attached(nodes, model, metadata, interface)
        write_rows(nodes, logits, 1, len(model.names), interface)
        return make_document(nodes, len(model.names), metadata, interface)
    assert isinstance(model, Segmenter | ImageClassifier)
    image, stem_scale = write_input(nodes, metadata, interface)
    logits = Translator(model, interface.shape, image, stem_scale, nodes).run()
    classes = len(model.names)
    write_outputs(nodes, logits, classes, interface)
    return make_document(nodes, classes, metadata, interface)


def make_document(nodes: NodeList, classes: int, metadata: Metadata, interface: GraphInterface) -> onnx.ModelProto:
    """The model of these nodes with its description, checked; the constants are moved out of `nodes`."""
    kind = TensorProto.UINT8 if interface.input == "uint8" else TensorProto.FLOAT
    image = helper.make_tensor_value_info(INPUT_NAME, kind, input_dims(interface.shape, interface))
    outputs = [
        helper.make_tensor_value_info(name, output_type(name, classes), output_dims(name, classes, interface.shape))
        for name in interface.outputs
    ]
    opset = helper.make_opsetid("", interface.opset)
    document = helper.make_model(
        helper.make_graph(nodes.nodes, "rcil", [image], outputs),
        opset_imports=[opset],
        ir_version=helper.find_min_ir_version_for([opset]),
        producer_name="rcil",
        producer_version=__version__,
    )
    for name in list(nodes.constants):  # moved, not copied: they are most of a network's memory
        document.graph.initializer.append(nodes.constants.pop(name))
    describe(document, metadata, interface)
    check_graph(document, interface)
    return document
