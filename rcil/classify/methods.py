"""EEIL and PODNet: how a step starts, its loss terms, and what is fine-tuned on the memory."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import torch
import torch.nn.functional as F
from pydantic import Field, ValidationError
from torch import Tensor, nn

from rcil.classify.heads import CosineClassifier, kmeans
from rcil.classify.losses import heads_distillation, nca, pod_flat, pod_spatial
from rcil.classify.network import HeadSpec, ImageClassifier, Outputs
from rcil.classify.task import MethodName, Positive
from rcil.losses.maps import class_schedule
from rcil.methods.base import LossTerms
from rcil.model.architecture import RC, BranchWeight, DropChance, FrozenModel, MixKind
from rcil.nn.classifier import IncrementalClassifier
from rcil.tasks.load import explained

Embed = Callable[[], Sequence[Tensor]]
"""Computes the embeddings [N, C] of the training images of each new class before training."""
Weight = Annotated[float, Field(ge=0)]


@dataclass(frozen=True)
class HeadSizes:
    """Number of classes of each step so far, the current step last."""

    sizes: tuple[int, ...]

    @property
    def schedule(self) -> float:
        """sqrt(classes so far / classes of this step)."""
        return class_schedule(sum(self.sizes), self.sizes[-1])


class ClassifyMethod(FrozenModel, ABC):
    """A method and its options; RC options have no effect without RC."""

    preserve: bool = False
    """Initialise the new branch from the merged one, so that a step starts from the old function."""
    mix: MixKind = "drop_path"
    """How the branches are weighted: randomly in training, by a fixed weight, or by a learned weight per channel."""
    drop: DropChance = 1 / 3
    """Drop-path: the probability that a channel uses only the old branch, and likewise only the new one."""
    old_weight: BranchWeight = 0.5
    """Weight of the old branch if `mix` is fixed."""
    tune_lr: Positive = 0.01
    """Learning rate on the balanced memory, relative to that of the step."""

    @property
    def branches(self) -> RC:
        """The RC branches of step 0."""
        return RC(mix=self.mix, drop=self.drop, old_weight=self.old_weight)

    @property
    @abstractmethod
    def head(self) -> HeadSpec:
        """The head that the losses require."""

    @abstractmethod
    def grow(self, model: ImageClassifier, new: Sequence[str], embed: Embed, generator: torch.Generator) -> None:
        """Add the classes of a later step to the head of `model`."""

    @abstractmethod
    def terms(self, new: Outputs, old: Outputs | None, labels: Tensor, heads: HeadSizes) -> LossTerms:
        """The loss terms of a batch.

        Args:
            new: Outputs of the student.
            old: Outputs of the previous network; None in step 0.
            labels: Rows [N].
            heads: The steps so far.
        """

    @abstractmethod
    def set_tuning(self, model: ImageClassifier) -> list[nn.Parameter]:
        """Set the mode of the student for fine-tuning on the memory; returns the parameters to tune."""


class Eeil(ClassifyMethod):
    """End-to-end incremental learning: cross entropy, distillation per head, balanced fine-tuning of all weights."""

    distillation: Weight = 1.0
    """Weight of the distillation."""

    @property
    def head(self) -> HeadSpec:
        """One linear head per step."""
        return HeadSpec("linear")

    def grow(self, model: ImageClassifier, new: Sequence[str], embed: Embed, generator: torch.Generator) -> None:
        """Add randomly initialised rows."""
        assert isinstance(model.head, IncrementalClassifier)
        model.head = model.head.extended(new, "random")

    def terms(self, new: Outputs, old: Outputs | None, labels: Tensor, heads: HeadSizes) -> LossTerms:
        """Cross entropy over all heads, and distillation of the old heads."""
        terms = LossTerms(ce=F.cross_entropy(new.scores, labels))
        if old is not None:
            terms["kd"] = self.distillation * heads_distillation(new.scores, old.scores, heads.sizes[:-1])
        return terms

    def set_tuning(self, model: ImageClassifier) -> list[nn.Parameter]:
        """Tune all trainable parameters."""
        model.train()
        return [p for p in model.parameters() if p.requires_grad]


class PodNet(ClassifyMethod):
    """Pooled outputs distillation: NCA on a cosine head, POD on stages and embedding, and fine-tuning of the head."""

    proxies: Annotated[int, Field(ge=1)] = 10
    """Number of proxies per class."""
    margin: Weight = 0.6
    """Margin of the NCA loss, in cosines."""
    spatial: Weight = 8.0
    """Weight of POD on the stage maps, times sqrt(classes so far / classes of this step)."""
    flat: Weight = 10.0
    """Weight of POD on the embedding, scaled in the same way."""

    @property
    def head(self) -> HeadSpec:
        """A cosine head with several proxies per class."""
        return HeadSpec("cosine", self.proxies)

    def grow(self, model: ImageClassifier, new: Sequence[str], embed: Embed, generator: torch.Generator) -> None:
        """Imprint new proxies: the cluster centres of the embeddings of each class."""
        assert isinstance(model.head, CosineClassifier)
        points = [F.normalize(embeddings, dim=1).cpu() for embeddings in embed()]
        starts = torch.stack([kmeans(one, self.proxies, generator) for one in points])
        model.head = model.head.extended(new, starts.to(next(model.parameters())))

    def terms(self, new: Outputs, old: Outputs | None, labels: Tensor, heads: HeadSizes) -> LossTerms:
        """NCA and both POD terms, on maps before the last activation."""
        terms = LossTerms(nca=nca(new.scores, labels, new.scale, self.margin))
        if old is not None:
            terms["pod"] = self.spatial * heads.schedule * pod_spatial(new.stages, old.stages)
            terms["flat"] = self.flat * heads.schedule * pod_flat(new.embedding, old.embedding)
        return terms

    def set_tuning(self, model: ImageClassifier) -> list[nn.Parameter]:
        """Tune the head only, with the backbone in evaluation mode."""
        model.eval()
        return list(model.head.parameters())


METHODS: dict[MethodName, type[ClassifyMethod]] = {"eeil": Eeil, "podnet": PodNet}


def make_classify_method(name: MethodName, options: dict[str, Any]) -> ClassifyMethod:
    """Create a method with its options; unknown options get a suggestion."""
    try:
        return METHODS[name].model_validate(options)
    except ValidationError as error:
        raise explained(error, Path(f"method {name}"), METHODS[name]) from error
