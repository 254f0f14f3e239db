"""What a method is: how a step starts, and which named loss terms a batch has.

A method sees maps, not networks: the training loop runs student and teacher and hands over what they returned. So the
loop stays one for all methods, and terms depend on the maps, the labels and what the method remembers alone: PLOP's
thresholds, or SDR's prototypes, which follow every batch. That is its state.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from pydantic import ConfigDict
from torch import Tensor

from rcil.losses.maps import class_schedule
from rcil.model.architecture import RC
from rcil.nn import Maps, Segmenter, begin_step
from rcil.nn.add_branches import add_branches
from rcil.nn.classifier import RowStart
from rcil.nn.segmenter import MapKind


@dataclass(frozen=True)
class StepInfo:
    """Class counts of the step; a domain step adds none."""

    old: int
    """Classes before this step, background included; 0 in step 0."""
    new: int
    """Classes that this step adds."""
    memory: bool = False
    """Whether images of earlier steps come back, with labels of their classes."""

    @property
    def classes(self) -> int:
        """All classes so far."""
        return self.old + self.new

    @property
    def domain(self) -> bool:
        """Whether the step brings new scenes only."""
        return self.old > 0 and self.new == 0

    @property
    def schedule(self) -> float:
        """sqrt(|C| / |N|), 1 in a domain step."""
        return class_schedule(self.classes, self.new or self.classes)


class LossTerms(dict[str, Tensor]):
    """Named scalars; logs read the names, training the sum."""

    @property
    def total(self) -> Tensor:
        """The sum of all terms."""
        return torch.stack(list(self.values())).sum()


@dataclass
class Method(ABC):
    """One row of the paper's tables. Subclasses are dataclasses whose fields are the method's options."""

    __pydantic_config__: ClassVar[ConfigDict] = ConfigDict(arbitrary_types_allowed=True)
    needs_teacher: ClassVar[bool] = True
    """Whether later steps run the previous model beside the student."""
    maps: ClassVar[MapKind] = "before"
    """On which side of the last activation the stage maps are taken."""
    rows: ClassVar[RowStart] = "random"
    """How new classifier rows start."""
    sees_all_data: ClassVar[bool] = False
    """Joint training: one step with all classes and images."""
    carries_over: ClassVar[bool] = False
    """Whether a step goes on with what earlier steps left in the method's state, which no checkpoint holds."""

    def __post_init__(self) -> None:
        self.sum_over_processes: Callable[[Tensor], Tensor] = lambda value: value
        """Adds up what the processes of a run counted, for methods that remember something of their batches."""

    @property
    def first_step(self) -> str:
        """Methods with the same word and the same `rc` train step 0 in the same way and remember nothing of it."""
        return "plain"

    @property
    def rc(self) -> RC | None:
        """The two branches that step 0 starts with; None for a plain network."""
        return None

    def begin(self, model: Segmenter, new_classes: Sequence[str]) -> Segmenter:
        """The student at the start of a later step; `model` stays as it is and is the teacher."""
        return begin_step(with_branches(model, self.rc), new_classes, rows=self.rows)

    def set_training(self, model: Segmenter) -> None:
        """Put the student into the mode that its batches are computed in."""
        model.train()

    def start(
        self, student: Segmenter, teacher: Segmenter, info: StepInfo, images: Iterable[tuple[Tensor, Tensor]]
    ) -> None:
        """Change the student of a later step before its training; most methods leave it as `begin` made it.

        Args:
            student: What is about to be trained.
            teacher: What the step starts from, folded.
            info: The step.
            images: As in `finish`.
        """
        del student, teacher, info, images

    def prepare(self, batches: Iterable[tuple[Maps, Tensor]], info: StepInfo, student: Segmenter) -> None:
        """Look at the step's data once with the teacher before training; most methods need nothing.

        Args:
            batches: The teacher's maps and the labels [N, H, W] of every training batch.
            info: The step.
            student: What is about to be trained; its classifier may be changed.
        """
        del batches, info, student

    def finish(
        self, student: Segmenter, previous: Segmenter | None, info: StepInfo, images: Iterable[tuple[Tensor, Tensor]]
    ) -> Segmenter:
        """The network of a step after its training.

        Args:
            student: What was trained.
            previous: What the step started from; None in step 0.
            info: The step.
            images: Some whole training images [N, 3, H, W] with their labels [N, H, W], read when asked for.
        """
        del previous, info, images
        return student

    @abstractmethod
    def terms(self, new: Maps, old: Maps | None, labels: Tensor, info: StepInfo) -> LossTerms:
        """The loss terms of a batch.

        Args:
            new: What the student returned.
            old: What the teacher returned; None in step 0 and for methods without a teacher.
            labels: Classifier rows [N, H, W]; 255 is ignored.
            info: The step.
        """

    def state_dict(self) -> dict[str, Any]:
        """What must survive an interruption: tensors and plain values."""
        return {}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore what `state_dict` gave."""
        del state


def with_branches(model: Segmenter, rc: RC | None) -> Segmenter:
    """`model` with the branches that `rc` asks for: itself where it has them, or where none are wanted."""
    return model if rc is None or model.arch.rc is not None else add_branches(model, rc)
