"""The state of an interrupted step."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import torch
from torch import Tensor

from rcil.classify.network import ImageClassifier
from rcil.core.errors import TrainingError, first_line
from rcil.core.interrupts import Interrupted
from rcil.training.state import read_state, write_state

Phase = Literal["train", "tune"]
"""`train`: on the images of the step and the memory. `tune`: on the memory alone."""


def interrupted_phase(path: Path) -> Phase | None:
    """The phase in which a step was interrupted; None if it was not."""
    phase: Phase | None = read_state(path).get("phase") if path.exists() else None
    return phase


@dataclass
class PhaseState:
    """Everything that the rest of a phase depends on."""

    phase: Phase
    student: ImageClassifier
    optimiser: torch.optim.Optimizer
    schedule: torch.optim.lr_scheduler.LRScheduler
    generator: torch.Generator
    done: int = 0
    """Finished iterations."""
    _start: Tensor = field(init=False)
    """State of the generator at the start of the phase, from which all batches are drawn again."""

    def __post_init__(self) -> None:
        self._start = self.generator.get_state()

    @contextlib.contextmanager
    def continued(self, path: Path | None) -> Iterator[None]:
        """Restore the state at `path` if it is of this phase, and save it there if the block is interrupted."""
        if path is not None and interrupted_phase(path) == self.phase:
            self._load(path)
        try:
            yield
        except Interrupted:
            if path is not None:
                self._save(path)
            raise

    def _save(self, path: Path) -> None:
        document: dict[str, Any] = {
            "phase": self.phase,
            "done": self.done,
            "student": self.student.state_dict(),
            "optimiser": self.optimiser.state_dict(),
            "schedule": self.schedule.state_dict(),
            "generator": self._start,
            "rng": torch.get_rng_state(),
        }
        write_state(path, document)

    def _load(self, path: Path) -> None:
        document = read_state(path)
        try:
            self.student.load_state_dict(document["student"])
            self.optimiser.load_state_dict(document["optimiser"])
            self.schedule.load_state_dict(document["schedule"])
            self.done, self._start = int(document["done"]), document["generator"]
            self.generator.set_state(self._start)
            torch.set_rng_state(document["rng"])
        except (AttributeError, LookupError, RuntimeError, TypeError, ValueError) as error:
            raise TrainingError(
                f"{path} does not belong to this task: {first_line(error)}", "Delete it to train the step again."
            ) from error
