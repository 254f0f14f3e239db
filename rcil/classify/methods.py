"""EEIL and PODNet: how a step starts, which loss terms a batch has, what is tuned on the memory afterwards."""

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
from rcil.train.task import explained

Embed = Callable[[], Sequence[Tensor]]
"""Embeddings [N, C] of the training images of each new class, by the network before it learns them."""
Weight = Annotated[float, Field(ge=0)]


@dataclass(frozen=True)
class HeadSizes:
    """Classes that each step so far brought, the current one last."""

    sizes: tuple[int, ...]

    @property
    def schedule(self) -> float:
        """sqrt(classes so far / classes of this step)."""
        return class_schedule(sum(self.sizes), self.sizes[-1])


class ClassifyMethod(FrozenModel, ABC):
    """A method's options; those of RC do nothing without it."""

    preserve: bool = False
    """Start the new branch from the merged one, so that a step starts from the old function."""
    mix: MixKind = "drop_path"
    """How the branches are weighted: at random while training, by one fixed weight, or by a learned one a channel."""
    drop: DropChance = 1 / 3
    """Drop-path: the chance that a channel sees the old branch alone, and again the new branch alone."""
    old_weight: BranchWeight = 0.5
    """Of the old branch when the mix is fixed."""
    tune_lr: Positive = 0.01
    """Learning rate on the balanced memory, as a factor of the step's."""

    @property
    def branches(self) -> RC:
        """The two branches that step 0 starts with."""
        return RC(mix=self.mix, drop=self.drop, old_weight=self.old_weight)

    @property
    @abstractmethod
    def head(self) -> HeadSpec:
        """The head that the losses are made for."""

    @abstractmethod
    def grow(self, model: ImageClassifier, new: Sequence[str], embed: Embed, generator: torch.Generator) -> None:
        """Add the classes of a later step to the head of `model`."""

    @abstractmethod
    def terms(self, new: Outputs, old: Outputs | None, labels: Tensor, heads: HeadSizes) -> LossTerms:
        """The loss terms of a batch.

        Args:
            new: What the student returned.
            old: What the previous network returned; None in step 0.
            labels: Rows [N].
            heads: The steps so far.
        """

    @abstractmethod
    def set_tuning(self, model: ImageClassifier) -> list[nn.Parameter]:
        """Put the student into the mode that it is tuned on the memory in; returns what is tuned."""


class Eeil(ClassifyMethod):
    """End-to-end incremental learning: cross entropy, distillation head by head, a balanced fine-tune of everything."""

    distillation: Weight = 1.0
    """Weight of the distillation."""

    @property
    def head(self) -> HeadSpec:
        """One linear head a step."""
        return HeadSpec("linear")

    def grow(self, model: ImageClassifier, new: Sequence[str], embed: Embed, generator: torch.Generator) -> None:
        """New rows start at random."""
        assert isinstance(model.head, IncrementalClassifier)
        model.head = model.head.extended(new, "random")

    def terms(self, new: Outputs, old: Outputs | None, labels: Tensor, heads: HeadSizes) -> LossTerms:
        """Cross entropy over all heads, and the old heads' softened softmaxes."""
        terms = LossTerms(ce=F.cross_entropy(new.scores, labels))
        if old is not None:
            terms["kd"] = self.distillation * heads_distillation(new.scores, old.scores, heads.sizes[:-1])
        return terms

    def set_tuning(self, model: ImageClassifier) -> list[nn.Parameter]:
        """All that trains."""
        model.train()
        return [p for p in model.parameters() if p.requires_grad]


class PodNet(ClassifyMethod):
    """Pooled outputs distillation: NCA on a cosine head, POD on the stages and the embedding, a tune of the head."""

    proxies: Annotated[int, Field(ge=1)] = 10
    """Of each class."""
    margin: Weight = 0.6
    """Of the NCA loss, in cosines."""
    spatial: Weight = 8.0
    """Weight of POD on the stage maps, times sqrt(classes so far / classes of this step)."""
    flat: Weight = 10.0
    """The same for the embedding."""

    @property
    def head(self) -> HeadSpec:
        """Cosines with several proxies a class."""
        return HeadSpec("cosine", self.proxies)

    def grow(self, model: ImageClassifier, new: Sequence[str], embed: Embed, generator: torch.Generator) -> None:
        """New proxies are imprinted: the centres of the class's embeddings."""
        assert isinstance(model.head, CosineClassifier)
        points = [F.normalize(embeddings, dim=1).cpu() for embeddings in embed()]
        starts = torch.stack([kmeans(one, self.proxies, generator) for one in points])
        model.head = model.head.extended(new, starts.to(next(model.parameters())))

    def terms(self, new: Outputs, old: Outputs | None, labels: Tensor, heads: HeadSizes) -> LossTerms:
        """NCA and both PODs, on maps before their last activation."""
        terms = LossTerms(nca=nca(new.scores, labels, new.scale, self.margin))
        if old is not None:
            terms["pod"] = self.spatial * heads.schedule * pod_spatial(new.stages, old.stages)
            terms["flat"] = self.flat * heads.schedule * pod_flat(new.embedding, old.embedding)
        return terms

    def set_tuning(self, model: ImageClassifier) -> list[nn.Parameter]:
        """The head alone; the backbone works as in evaluation."""
        model.eval()
        return list(model.head.parameters())


METHODS: dict[MethodName, type[ClassifyMethod]] = {"eeil": Eeil, "podnet": PodNet}


def make_classify_method(name: MethodName, options: dict[str, Any]) -> ClassifyMethod:
    """A method with its options; unknown ones get a suggestion."""
    try:
        return METHODS[name].model_validate(options)
    except ValidationError as error:
        raise explained(error, Path(f"method {name}"), METHODS[name]) from error
