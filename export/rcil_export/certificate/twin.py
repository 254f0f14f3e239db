"""The graph that a delivered file must equal: a plain network with weights that `fold` has not touched."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import torch
from torch import Tensor

from rcil.checkpoint.file import check_tensors
from rcil.classify.network import HeadSpec, ImageClassifier, build_classifier
from rcil.core.errors import CheckpointError
from rcil.model.architecture import Architecture
from rcil.model.attached import AttachedArchitecture
from rcil.model.header import read_header
from rcil.model.metadata import ClassifierMetadata, Metadata
from rcil.nn import Network, Segmenter
from rcil.nn.attached.builders import build_module
from rcil.nn.attached.network import AttachedNetwork, build_attached
from rcil.nn.build import build
from rcil_export.certificate.weights import attached_weights, deployed_weights, open_tensors
from rcil_export.graph.export import to_onnx
from rcil_export.graph.interface import GraphInterface


def twin_document(checkpoint: Path, metadata: Metadata, interface: GraphInterface) -> onnx.ModelProto:
    """The fp32 graph of the independent twin of a checkpoint, with independently computed weights.

    Architecture, class names and weights come from the checkpoint, whatever `metadata` says about them. The network is
    built from convs with bias, and its weights are computed by `certificate.weights`: `fold` has no part in either.

    Args:
        checkpoint: Of a segmenter or of a classifier of whole images, of any step, folded or not.
        metadata: The description in the graph; its mean and std normalise the pixels.
        interface: What the graph takes and gives; its precision is ignored.
    """
    return to_onnx(independent_twin(checkpoint), metadata, interface.model_copy(update={"precision": "fp32"}))


def independent_twin(checkpoint: Path) -> Network | ImageClassifier:
    """The plain network of a checkpoint, in evaluation mode, with independently computed weights."""
    stored = read_header(checkpoint).metadata
    if isinstance(stored.architecture, AttachedArchitecture):
        return attached_twin(checkpoint, stored.architecture, [c.name for c in stored.classes])
    with torch.device("meta"):
        twin = plain_network(stored)
    forms = twin.state_dict()
    values: dict[str, Tensor] = {}
    with open_tensors(checkpoint) as tensors:
        assert isinstance(stored.architecture, Architecture)
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


def attached_twin(checkpoint: Path, arch: AttachedArchitecture, names: list[str]) -> AttachedNetwork:
    """The user's own network before attaching, with a row for every class and a conv with bias for every norm."""
    norms = {unit.norm for unit in arch.units if unit.norm is not None}
    parts = build_module(arch.factory, arch.args).named_modules()
    eps = {name: float(part.eps) for name, part in parts if name in norms}
    twin = build_attached(arch.replace(rc=None, folded=True), [names])
    wanted = twin.tensors()
    with open_tensors(checkpoint) as tensors:
        found = dict(attached_weights(tensors, arch, wanted, eps))
    values = {name: torch.from_numpy(array).to(wanted[name].dtype) for name, array in found.items()}
    check_tensors(wanted, values, checkpoint)
    twin.load_tensors(values, range(len(names)))
    return twin.eval()


def plain_network(stored: Metadata) -> Segmenter | ImageClassifier:
    """The network that a description describes, built from convs with bias, with random weights."""
    assert isinstance(stored.architecture, Architecture)
    arch = stored.architecture.replace(rc=None, folded=True, norm="batch")
    names = [c.name for c in stored.classes]
    if isinstance(stored, ClassifierMetadata):
        return build_classifier(arch, HeadSpec(stored.head, stored.proxies), [names])
    if stored.kind != "segmenter":
        raise CheckpointError(f"the checkpoint holds a {stored.kind}, which is not deployed", "Give a trained model.")
    return build(arch, [names])
