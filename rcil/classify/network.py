"""The image classifier: a backbone with RC blocks, global average pooling and an extensible head."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, overload

import torch
from torch import Tensor, nn

from rcil.classify.heads import CosineClassifier, FoldedCosine, random_cosine
from rcil.model.architecture import Architecture
from rcil.nn.architectures.deeplab import pool
from rcil.nn.architectures.resnet import ResNet
from rcil.nn.classifier import IncrementalClassifier
from rcil.nn.fold import FoldReport, fold_layers
from rcil.nn.network import MapKind
from rcil.nn.step import next_architecture, next_branches

HeadKind = Literal["linear", "cosine"]


@dataclass(frozen=True)
class HeadSpec:
    """The kind of head, as stored in a checkpoint."""

    kind: HeadKind
    proxies: int = 1
    """Number of proxies per class of a cosine head."""


@dataclass(frozen=True)
class Outputs:
    """The inputs of the losses."""

    stages: tuple[Tensor, ...]
    """Last map of each of the four stages [N, C_i, H_i, W_i], before or after the activation."""
    embedding: Tensor
    """Input of the head [N, C]."""
    scores: Tensor
    """Class scores [N, classes]."""
    scale: Tensor
    """The learned scale of a cosine head; 1 for a linear head."""


class ImageClassifier(nn.Module):
    """A network that predicts one label per image; see `build_classifier`."""

    def __init__(self, arch: Architecture, head: HeadSpec, steps: Sequence[Sequence[str]]) -> None:
        super().__init__()
        self.arch = arch
        self.head_spec = head
        self.backbone = ResNet(arch)
        self.head: IncrementalClassifier | CosineClassifier | FoldedCosine
        if head.kind == "cosine" and arch.folded:
            names = [name for step in steps for name in step]
            self.head = random_cosine(self.backbone.stage_channels[-1], names, head.proxies)
        elif head.kind == "cosine":
            self.head = CosineClassifier(self.backbone.stage_channels[-1], steps, head.proxies)
        else:
            self.head = IncrementalClassifier(self.backbone.stage_channels[-1], steps)

    @property
    def names(self) -> tuple[str, ...]:
        """Class names in row order."""
        return self.head.names

    @overload
    def forward(self, x: Tensor, maps: None = None) -> Tensor: ...
    @overload
    def forward(self, x: Tensor, maps: MapKind) -> Outputs: ...

    def forward(self, x: Tensor, maps: MapKind | None = None) -> Tensor | Outputs:
        """Classify normalised images.

        Args:
            x: [N, 3, H, W].
            maps: None returns the scores [N, classes]; otherwise `Outputs` with the stage maps before or after their
                last activation.
        """
        stages = self.backbone(x)
        pooled = pool(stages.after[-1], None)
        scores = torch.flatten(self.head(pooled), 1)
        if maps is None:
            return scores
        return Outputs(
            stages=stages.before if maps == "before" else stages.after,
            embedding=torch.flatten(pooled, 1),
            scores=scores,
            scale=scores.new_ones(()) if isinstance(self.head, IncrementalClassifier) else self.head.scale,
        )


def build_classifier(arch: Architecture, head: HeadSpec, steps: Sequence[Sequence[str]]) -> ImageClassifier:
    """Build a network with random weights: He-normal convs and torch's default initialisation of the head.

    Args:
        arch: The backbone. A folded architecture gives the deployed form: convs with bias, no norms.
        head: The head.
        steps: Class names of each step.
    """
    if arch.folded:
        arch, steps = arch.replace(norm="batch"), [[name for names in steps for name in names]]
    model = ImageClassifier(arch, head, steps)
    for conv in model.backbone.modules():
        if isinstance(conv, nn.Conv2d):
            nn.init.kaiming_normal_(conv.weight, a=arch.slope, mode="fan_out", nonlinearity="leaky_relu")
    return model.eval() if arch.folded else model


def next_step(model: ImageClassifier, *, preserve: bool = False) -> ImageClassifier:
    """The network at the start of a later step, before its head is extended; `model` is not changed.

    Args:
        model: The network of the step before, not folded.
        preserve: Initialise the new branches from the merged convs, so that the function does not change.
    """
    student = next_branches(model, preserve=preserve)
    student.arch = next_architecture(model.arch, preserve=preserve)
    return student


def fold_classifier(model: ImageClassifier) -> tuple[ImageClassifier, FoldReport]:
    """The deployed form of `model` in evaluation mode, and a report of the fold; `model` is not changed."""
    folded, report = fold_layers(model, {CosineClassifier: "classifier"})
    folded.arch = model.arch.replace(rc=None, folded=True, norm="batch")
    return folded, report


def plain_classifier_twin(model: ImageClassifier) -> ImageClassifier:
    """The network that never had RC: same backbone, head and classes, all units convs with bias; see `plain_twin`."""
    return build_classifier(model.arch.replace(rc=None, folded=True), model.head_spec, [model.names])
