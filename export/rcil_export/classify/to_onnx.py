"""A folded classifier of whole images and its description -> an ONNX model."""

from __future__ import annotations

import onnx

from rcil.classify.network import ImageClassifier
from rcil.model.metadata import ClassifierMetadata
from rcil_export.classify.interface import ClassifierInterface
from rcil_export.graph.export import make_document
from rcil_export.graph.nodes import NodeList
from rcil_export.graph.postprocessing import write_labels
from rcil_export.graph.preprocessing import write_input
from rcil_export.graph.translate import Translator


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
    return make_document(nodes, classes, metadata, interface)
