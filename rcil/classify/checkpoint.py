"""Save and load classifiers as self-describing safetensors files, without pickle."""

from __future__ import annotations

from pathlib import Path

import torch

from rcil.checkpoint.file import check_tensors, read_tensors, write_tensors
from rcil.classify.network import HeadSpec, ImageClassifier, build_classifier, plain_classifier_twin
from rcil.core.errors import CheckpointError
from rcil.model.header import read_header
from rcil.model.metadata import ClassifierMetadata, CostInfo
from rcil.nn.cost import cost


def save_classifier(path: Path, model: ImageClassifier, metadata: ClassifierMetadata) -> ClassifierMetadata:
    """Write `model` with its metadata; returns the stored metadata, with architecture and cost of the model."""
    names = [c.name for c in metadata.classes]
    if names != list(model.names):
        raise CheckpointError(
            f"the class table names {names}, but the rows of the head are {list(model.names)}",
            "Describe the classes in the order of the rows.",
        )
    stored = metadata.model_copy(update={"architecture": model.arch, "cost": _cost_of(model, metadata.size)})
    write_tensors(path, model.state_dict(), stored)
    return stored


def load_classifier(path: Path) -> tuple[ImageClassifier, ClassifierMetadata]:
    """Load a classifier in evaluation mode, and its metadata."""
    metadata = read_header(path).metadata
    if not isinstance(metadata, ClassifierMetadata):
        raise CheckpointError(
            f"{path} holds a {metadata.kind}, not an image classifier", "Give a file that `rcil classify` wrote."
        )
    head = HeadSpec(metadata.head, metadata.proxies)
    tensors = read_tensors(path)
    with torch.device("meta"):  # allocates no memory before the shapes are checked
        form = build_classifier(metadata.architecture, head, metadata.names_by_step)
    check_tensors(form.state_dict(), tensors, path)
    model = build_classifier(metadata.architecture, head, metadata.names_by_step)
    model.load_state_dict(tensors)
    return model.eval(), metadata


def _cost_of(model: ImageClassifier, side: int) -> CostInfo:
    with torch.device("meta"):
        twin = plain_classifier_twin(model)
    mine, folded = cost(model, (side, side)), cost(twin, (side, side))
    return CostInfo(size=mine.size, macs=mine.macs, folded_parameters=folded.parameters, folded_macs=folded.macs)
