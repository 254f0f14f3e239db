"""The base class of methods: how a step starts, and which named loss terms a batch has.

A method receives maps, not networks: the training loop runs student and teacher and passes their outputs. So there is
one loop for all methods, and loss terms depend on the maps, the labels and the state of the method only, such as PLOP's
thresholds or SDR's prototypes.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

import torch
from pydantic import ConfigDict
from torch import Tensor

from rcil.losses.maps import class_schedule
from rcil.model.architecture import RC
from rcil.model.features import FeatureStatistics
from rcil.nn import Maps, Network, begin_step
from rcil.nn.network import MapKind, RowStart
from rcil.nn.step import add_branches


@dataclass(frozen=True)
class StepInfo:
    """Class counts of a step; a domain step adds no class."""

    old: int
    """Classes before this step, background included; 0 in step 0."""
    new: int
    """Classes that this step adds."""
    memory: bool = False
    """Whether a memory adds images of earlier steps with labels of their classes."""
    weights: Tensor | None = field(default=None, compare=False)
    """Weight of every class in the cross entropy [classes], on the device of the maps; None weighs pixels equally."""

    @property
    def classes(self) -> int:
        """All classes so far."""
        return self.old + self.new

    @property
    def domain(self) -> bool:
        """Whether the step adds new scenes and no class."""
        return self.old > 0 and self.new == 0

    @property
    def schedule(self) -> float:
        """sqrt(|C| / |N|), 1 in a domain step."""
        return class_schedule(self.classes, self.new or self.classes)


class LossTerms(dict[str, Tensor]):
    """Named scalar loss terms; training uses the sum, and logs use the names."""

    @property
    def total(self) -> Tensor:
        """The sum of all terms."""
        return torch.stack(list(self.values())).sum()


@dataclass
class Method(ABC):
    """One row of the paper's tables. Subclasses are dataclasses whose fields are the method's options."""

    __pydantic_config__: ClassVar[ConfigDict] = ConfigDict(arbitrary_types_allowed=True)
    needs_teacher: ClassVar[bool] = True
    """Whether later steps also run the previous model, as the teacher."""
    maps: ClassVar[MapKind] = "before"
    """Whether stage maps are taken before or after the last activation."""
    rows: ClassVar[RowStart] = "random"
    """How new classifier rows are initialised."""
    sees_all_data: ClassVar[bool] = False
    """Whether the method trains all classes and images in one step (joint training)."""
    weighs_classes: ClassVar[bool] = True
    """Whether the loss has class weights; losses of one sigmoid per class have none."""
    needs_norms: ClassVar[bool] = True
    """Whether a later step trains norms, so that it can only begin from a folded network once it has been unfolded."""
    keeps_old: ClassVar[bool] = False
    """Whether later steps leave the logits of old classes unchanged."""
    carries_over: ClassVar[bool] = False
    """Whether the method's state, which checkpoints do not contain, is carried over to later steps."""

    def __post_init__(self) -> None:
        self.sum_over_processes: Callable[[Tensor], Tensor] = lambda value: value
        """Sums a tensor over the processes of a run, for methods that keep statistics of their batches."""
        self.known: FeatureStatistics | None = None
        """What the checkpoint that a step starts from remembers of the features of its classes."""
        self.measured: FeatureStatistics | None = None
        """The same for the network that `finish` returned; None if the method does not measure it."""

    @property
    def first_step(self) -> str:
        """Methods with the same name here and the same `rc` train step 0 identically, except for `finish`, and keep no
        state of it.
        """
        return "plain"

    @property
    def rc(self) -> RC | None:
        """The RC blocks that step 0 starts with; None for a plain network."""
        return None

    def begin(self, model: Network, new_classes: Sequence[str]) -> Network:
        """The student at the start of a later step; `model` is not changed and becomes the teacher."""
        return begin_step(with_branches(model, self.rc), new_classes, rows=self.rows)

    def set_training(self, model: Network) -> None:
        """Set the mode of the student for training batches."""
        model.train()

    def start(
        self, student: Network, teacher: Network, info: StepInfo, images: Iterable[tuple[Tensor, Tensor]]
    ) -> None:
        """Change the student of a later step before its training; by default nothing changes.

        Args:
            student: The network that will be trained.
            teacher: The folded network that the step starts from.
            info: The step.
            images: As in `finish`.
        """
        del student, teacher, info, images

    def prepare(self, batches: Iterable[tuple[Maps, Tensor]], info: StepInfo, student: Network) -> None:
        """Process the step's data once with the teacher before training; by default nothing is done.

        Args:
            batches: The teacher's maps and the labels [N, H, W] of every training batch.
            info: The step.
            student: The network that will be trained; its classifier may be changed.
        """
        del batches, info, student

    def finish(
        self,
        student: Network,
        previous: Network | None,
        teacher: Network | None,
        info: StepInfo,
        images: Iterable[tuple[Tensor, Tensor]],
    ) -> Network:
        """The network of a step after its training.

        Args:
            student: The trained network.
            previous: The network that the step started from; None in step 0.
            teacher: `previous`, folded; None in step 0 and for methods without a teacher.
            info: The step.
            images: Some whole training images [N, 3, H, W] with their labels [N, H, W], read anew in every iteration.
        """
        return student

    @abstractmethod
    def terms(self, new: Maps, old: Maps | None, labels: Tensor, info: StepInfo) -> LossTerms:
        """The loss terms of a batch.

        Args:
            new: The maps of the student.
            old: The maps of the teacher; None in step 0 and for methods without a teacher.
            labels: Classifier rows [N, H, W]; 255 is ignored.
            info: The step.
        """

    def state_dict(self) -> dict[str, Any]:
        """The state for resuming: tensors and plain values."""
        return {}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore a state from `state_dict`."""
        del state


def with_branches(model: Network, rc: RC | None) -> Network:
    """`model` with branches if `rc` is given and it has none; otherwise `model` itself."""
    return model if rc is None or model.arch.rc is not None else add_branches(model, rc)
