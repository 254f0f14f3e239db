"""The graph that a delivered file must equal: a plain network with weights that `fold` has not touched."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import torch
from torch import Tensor

from rcil.checkpoint.header import read_header
from rcil.checkpoint.metadata import ClassifierMetadata, Metadata
from rcil.classify.network import HeadSpec, ImageClassifier, build_classifier
from rcil.errors import CheckpointError
from rcil.nn import Segmenter
from rcil.nn.build import build
from rcil_export.certificate.weights import deployed_weights, open_tensors
from rcil_export.classify_interface import ClassifierInterface
from rcil_export.interface import Interface
from rcil_export.onnx_graph.classify_export import classifier_to_onnx
from rcil_export.onnx_graph.export import to_onnx


def twin_document(checkpoint: Path, metadata: Metadata, interface: Interface | ClassifierInterface) -> onnx.ModelProto:
    """The fp32 graph of the independent twin of a checkpoint, with independently computed weights.

    Architecture, class names and weights come from the checkpoint, whatever `metadata` says about them. The network is
    built from convs with bias, and its weights are computed by `certificate.weights`: `fold` has no part in either.

    Args:
        checkpoint: Of a segmenter or of a classifier of whole images, of any step, folded or not.
        metadata: What the graph says about itself; its mean and std are those of the pixel normalisation.
        interface: What the graph takes and gives. The graph is in fp32, whatever the precision is.
    """
    twin = independent_twin(checkpoint)
    exact = interface.model_copy(update={"precision": "fp32"})
    if isinstance(twin, ImageClassifier):
        assert isinstance(metadata, ClassifierMetadata) and isinstance(exact, ClassifierInterface)
        return classifier_to_onnx(twin, metadata, exact)
    assert isinstance(exact, Interface)
    return to_onnx(twin, metadata, exact)


def independent_twin(checkpoint: Path) -> Segmenter | ImageClassifier:
    """The plain network of a checkpoint, in evaluation mode, with independently computed weights."""
    stored = read_header(checkpoint).metadata
    with torch.device("meta"):
        twin = _plain(stored)
    forms = twin.state_dict()
    values: dict[str, Tensor] = {}
    with open_tensors(checkpoint) as tensors:
        for name, array in deployed_weights(tensors, stored.architecture, forms):
            if array.shape != tuple(forms[name].shape):
                raise CheckpointError(
                    f"{checkpoint}: {name} would have the shape {list(array.shape)}, the network needs "
                    f"{list(forms[name].shape)}",
                    "Check that the checkpoint's description is that of its network.",
                )
            values[name] = torch.from_numpy(np.asarray(array, np.float32))
    twin.load_state_dict(values, assign=True)
    return twin.eval()


def _plain(stored: Metadata) -> Segmenter | ImageClassifier:
    arch = stored.architecture.replace(rc=None, folded=True, norm="batch")
    names = [c.name for c in stored.classes]
    if isinstance(stored, ClassifierMetadata):
        return build_classifier(arch, HeadSpec(stored.head, stored.proxies), [names])
    if stored.kind != "segmenter":
        raise CheckpointError(f"the checkpoint holds a {stored.kind}, which is not deployed", "Give a trained model.")
    return build(arch, [names])
