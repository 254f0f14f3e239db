"""A folded classifier of whole images and its description -> an ONNX model."""

from __future__ import annotations

import onnx
from onnx import TensorProto, helper

from rcil import __version__
from rcil.checkpoint.header import METADATA_KEY
from rcil.checkpoint.metadata import ClassifierMetadata
from rcil.classify.network import ImageClassifier
from rcil_export.classify_interface import ClassifierInterface
from rcil_export.interface import INPUT_NAME, INTERFACE_KEY
from rcil_export.onnx_graph.ends import input_dims, label_dims, write_input, write_labels
from rcil_export.onnx_graph.lint import check_graph
from rcil_export.onnx_graph.nodes import NodeList
from rcil_export.onnx_graph.translate import Translator


def classifier_to_onnx(
    model: ImageClassifier, metadata: ClassifierMetadata, interface: ClassifierInterface
) -> onnx.ModelProto:
    """The graph of a folded `model` in evaluation mode, checked; the same arguments give the same bytes.

    Args:
        model: Folded.
        metadata: Travels along in the file; its class table names the rows.
        interface: What the graph takes and gives.
    """
    nodes = NodeList()
    image, stem_scale = write_input(nodes, metadata, interface)
    head = Translator(model, interface.shape, image, stem_scale, nodes).run()
    classes = len(model.names)
    write_labels(nodes, head, classes)
    image_kind = TensorProto.UINT8 if interface.input == "uint8" else TensorProto.FLOAT
    kinds = {"label": TensorProto.UINT8 if classes <= 256 else TensorProto.INT32, "scores": TensorProto.FLOAT}
    graph = helper.make_graph(
        nodes.nodes,
        "rcil",
        [helper.make_tensor_value_info(INPUT_NAME, image_kind, input_dims(interface.shape, interface))],
        [
            helper.make_tensor_value_info(name, kinds[name], label_dims(name, classes, interface.shape))
            for name in interface.outputs
        ],
        list(nodes.constants.values()),
    )
    opset = helper.make_opsetid("", interface.opset)
    document = helper.make_model(
        graph,
        opset_imports=[opset],
        ir_version=helper.find_min_ir_version_for([opset]),
        producer_name="rcil",
        producer_version=__version__,
    )
    helper.set_model_props(
        document, {METADATA_KEY: metadata.model_dump_json(), INTERFACE_KEY: interface.model_dump_json()}
    )
    check_graph(document, interface)
    return document
