"""A small classifier of whole images for tests of the exporter."""

from __future__ import annotations

import torch
from networks import randomise

from rcil.classify.network import HeadSpec, ImageClassifier, build_classifier, next_step
from rcil.model.architecture import Architecture
from rcil.model.metadata import ClassifierMetadata, class_table
from rcil.nn import RCConv

HEADS = {"linear": HeadSpec("linear"), "cosine": HeadSpec("cosine", 3)}


def small_classifier(head: str, stride: int = 16) -> tuple[ImageClassifier, ClassifierMetadata]:
    """Two branches, after one transition, with difficult statistics."""
    torch.manual_seed(0)
    arch = Architecture(backbone="resnet18", blocks=(1, 1, 1, 1), width=4).replace(output_stride=stride)
    model = build_classifier(arch, HEADS[head], [["a", "b"], ["c"]])
    randomise(model)
    model = next_step(model).eval()
    for module_ in model.modules():
        if isinstance(module_, RCConv):
            randomise(module_.new, 1)
    classes = class_table([["a", "b"], ["c"]])
    spec = HEADS[head]
    metadata = ClassifierMetadata(
        architecture=model.arch, classes=classes, step=1, head=spec.kind, proxies=spec.proxies, size=32
    )
    return model, metadata
