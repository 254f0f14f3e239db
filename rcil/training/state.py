"""The resume state of a step, in one file that is written atomically."""

from __future__ import annotations

import contextlib
import csv
import io
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

from rcil.checkpoint.importers.torch_file import is_fully_stored
from rcil.core.errors import TrainingError, first_line
from rcil.core.files import replacing, write_file
from rcil.core.interrupts import Interrupted
from rcil.evaluation.evaluate import EvalReport
from rcil.methods import Method
from rcil.nn import Network
from rcil.training.average import WeightAverage
from rcil.training.skipping import Skipped


@dataclass
class Position:
    """The progress of a step."""

    epoch: int = 0
    iteration: int = 0
    """Finished batches of the epoch."""
    best_miou: float = -1.0
    """Mean IoU of the kept epoch on the held-out images; -1 if it was not validated."""
    best_epoch: int = -1
    """The epoch that is kept: the best so far, or the last."""
    best_classes: dict[str, float] = field(default_factory=dict)
    """IoU in percent of every measurable class in the kept epoch."""
    rows: list[dict[str, float]] = field(default_factory=list)
    """Rows of the log."""
    skipped: Skipped = field(default_factory=Skipped)
    """Skipped batches of fp16 training."""

    def keep(self, epoch: int, report: EvalReport | None) -> None:
        """Note that the network of an epoch is kept, and its evaluation on the held-out images."""
        self.best_epoch = epoch
        if report is not None:
            self.best_miou, self.best_classes = report.all, report.iou_by_class

    def as_document(self) -> dict[str, Any]:
        """The position as plain values, for the state file."""
        return {**vars(self), "skipped": vars(self.skipped)}

    @classmethod
    def of(cls, document: dict[str, Any]) -> Position:
        """The inverse of `as_document`; older state files have no `skipped`."""
        return cls(**{**document, "skipped": Skipped(**document.get("skipped", {}))})


@dataclass
class StepState:
    """Everything that the rest of a step depends on."""

    model: Network
    optimiser: torch.optim.Optimizer
    schedule: torch.optim.lr_scheduler.LRScheduler
    scaler: torch.amp.GradScaler
    method: Method
    position: Position
    average: WeightAverage | None = None

    @property
    def kept(self) -> Network:
        """The network that is validated and kept: the average of the weights if there is one, else the model."""
        return self.model if self.average is None else self.average.model

    @property
    def _device(self) -> torch.device:
        """The device of the model and of the generator that draws its branches; may differ from torch's current GPU."""
        return next(self.model.parameters()).device

    @contextlib.contextmanager
    def unchanged_if_interrupted(self) -> Iterator[None]:
        """Undo what a validation changes, norm statistics and the random generator, if an interrupt ends the block."""
        buffers = {name: buffer.clone() for name, buffer in self.kept.named_buffers()}
        rng = torch.get_rng_state()
        try:
            yield
        except Interrupted:
            for name, buffer in self.kept.named_buffers():
                buffer.copy_(buffers[name])
            torch.set_rng_state(rng)
            raise

    def save(self, path: Path) -> None:
        """Write the state, including the random generator."""
        document = {
            "model": self.model.state_dict(),
            "optimiser": self.optimiser.state_dict(),
            "schedule": self.schedule.state_dict(),
            "scaler": self.scaler.state_dict(),
            "method": self.method.state_dict(),
            "position": self.position.as_document(),
            "average": None if self.average is None else self.average.state_dict(),
            "rng": torch.get_rng_state(),
            "cuda_rng": torch.cuda.get_rng_state(self._device) if self._device.type == "cuda" else None,
        }
        write_state(path, document)
        write_log(path.with_name("log.csv"), self.position.rows)

    def load(self, path: Path) -> None:
        """Restore a state written by `save`; code in the file is never run."""
        document = read_state(path)
        try:
            self.model.load_state_dict(document["model"])
            self.optimiser.load_state_dict(document["optimiser"])
            self.schedule.load_state_dict(document["schedule"])
            self.scaler.load_state_dict(document["scaler"])
            self.method.load_state_dict(document["method"])
            self.position = Position.of(document["position"])
            if self.average is not None:
                self.average.load_state_dict(document["average"])
            torch.set_rng_state(document["rng"])
            if document["cuda_rng"] is not None and self._device.type == "cuda":
                torch.cuda.set_rng_state(document["cuda_rng"], self._device)
        except (AttributeError, LookupError, RuntimeError, TypeError, ValueError) as error:
            raise TrainingError(
                f"{path} does not belong to this task: {first_line(error)}",
                "Resume with the task file and versions that the run was started with.",
            ) from error


def write_state(path: Path, document: dict[str, Any]) -> None:
    """Write a state file atomically; the same state gives the same bytes."""
    with replacing(path) as part, part.open("wb") as file:  # torch would write the name of a path into the file
        try:
            torch.save(document, file)
        except RuntimeError as error:  # raised by torch if the disk is full
            raise TrainingError(
                f"{path} could not be written in full", "Check the free space, then continue with --resume."
            ) from error


def read_state(path: Path) -> dict[str, Any]:
    """Read a state file."""
    try:
        document: dict[str, Any] = torch.load(path, weights_only=True, map_location="cpu")
        if not all(map(is_fully_stored, _tensors_in(document))):
            raise ValueError("a tensor claims more numbers than it stores")
    except Exception as error:
        raise TrainingError(
            f"cannot read the state in {path}", "Delete the folder of the step to train it again."
        ) from error
    return document


def _tensors_in(content: object) -> Iterator[torch.Tensor]:
    match content:
        case torch.Tensor():
            yield content
        case dict():
            for value in content.values():
                yield from _tensors_in(value)
        case list() | tuple():
            for value in content:
                yield from _tensors_in(value)


def write_log(path: Path, rows: list[dict[str, float]]) -> None:
    """Write the log as CSV; columns are in order of first appearance."""
    columns = list(dict.fromkeys(key for row in rows for key in row))
    text = io.StringIO()
    writer = csv.DictWriter(text, columns, lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    write_file(path, text.getvalue())
