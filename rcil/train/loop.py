"""The training loop of one step, top to bottom."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from rcil.checkpoint.file import load, save
from rcil.checkpoint.metadata import Metadata
from rcil.data.types import Sample, SegmentationData
from rcil.errors import TrainingError
from rcil.evaluate import evaluate
from rcil.methods import LossTerms, Method, StepInfo
from rcil.nn import Maps, Segmenter, fold
from rcil.train.loader import Crops, batches, epoch_order
from rcil.train.state import Position, StepState
from rcil.train.task import TrainingSection


@dataclass(frozen=True)
class Event:
    """What happened, for progress displays."""

    step: int
    epoch: int
    epochs: int
    iteration: int
    iterations: int
    terms: dict[str, float]
    miou: float | None = None
    """Of the held-out images, at the end of an epoch."""


Listener = Callable[[Event], None]


@dataclass(frozen=True)
class StepJob:
    """All that one step needs."""

    index: int
    info: StepInfo
    metadata: Metadata
    crops: Crops
    data: SegmentationData
    validation: tuple[Sample, ...]
    settings: TrainingSection
    scale: float
    """Share of their size at which the network sees images."""
    folder: Path


def train_step(
    job: StepJob, student: Segmenter, teacher: Segmenter | None, method: Method, listen: Listener
) -> Segmenter:
    """Train `student` and return the network of its best epoch; continues by itself if the folder holds a state."""
    settings, later = job.settings, min(job.index, 1)
    epochs = settings.epochs[later]
    iterations = len(epoch_order(len(job.crops), settings.batch, job.crops.seed, 0))
    old = fold(teacher)[0] if teacher is not None and method.needs_teacher else None
    layout = torch.channels_last if settings.channels_last else torch.contiguous_format
    for network in (student, old):
        if network is not None:
            network.to(memory_format=layout)  # type: ignore[call-overload]
    state = _new_state(student, method, settings, settings.lr[later], epochs * iterations)
    saved, best = job.folder / "state.pt", job.folder / "best.safetensors"
    if saved.exists():
        state.load(saved)
    elif old is not None:
        method.prepare(_seen_by(old, method, job.crops), job.info)
    position = state.position

    for epoch in range(position.epoch, epochs):
        student.train()
        for images, labels in batches(job.crops, epoch, position.iteration):
            terms = _forward(student, old, method, images.contiguous(memory_format=layout), labels, job)
            _check_finite(terms, job, epoch, position, best)
            state.optimiser.zero_grad(set_to_none=True)
            terms.total.backward()  # type: ignore[no-untyped-call]
            state.optimiser.step()
            state.schedule.step()
            position.iteration += 1
            numbers = {name: value.item() for name, value in terms.items()}
            position.rows.append({"epoch": epoch, "iteration": position.iteration, **numbers})
            listen(Event(job.index, epoch, epochs, position.iteration, iterations, numbers))
            if position.iteration % settings.save_every == 0:
                state.save(saved)
        miou = evaluate(student.eval(), job.metadata, job.data, job.validation, scale=job.scale).all
        if miou > position.best_miou:
            position.best_miou, position.best_epoch = miou, epoch
            save(best, student, job.metadata)
        position.epoch, position.iteration = epoch + 1, 0
        position.rows.append({"epoch": epoch, "iteration": iterations, "held_out_miou": miou})
        state.save(saved)
        listen(Event(job.index, epoch, epochs, iterations, iterations, {}, miou))
    return load(best)[0]


def _new_state(model: Segmenter, method: Method, settings: TrainingSection, lr: float, total: int) -> StepState:
    """Optimiser and schedule over what trains: the frozen branch has neither gradient nor optimiser state."""
    trained = [p for p in model.parameters() if p.requires_grad]
    nesterov = settings.momentum > 0
    optimiser = torch.optim.SGD(
        trained, lr, momentum=settings.momentum, nesterov=nesterov, weight_decay=settings.weight_decay
    )
    schedule = torch.optim.lr_scheduler.PolynomialLR(optimiser, total, power=settings.power)
    return StepState(model, optimiser, schedule, method, Position())


def _forward(
    student: Segmenter, old: Segmenter | None, method: Method, images: Tensor, labels: Tensor, job: StepJob
) -> LossTerms:
    """Run teacher and student and hand their maps to the method; losses leave autocast by themselves."""
    with torch.autocast(images.device.type, torch.bfloat16, enabled=job.settings.precision == "bf16"):
        before = None
        if old is not None:
            with torch.no_grad():
                before = old(images, maps=method.maps)
        return method.terms(student(images, maps=method.maps), before, labels, job.info)


@torch.no_grad()
def _seen_by(old: Segmenter, method: Method, crops: Crops) -> Iterator[tuple[Maps, Tensor]]:
    """The teacher's maps of the first epoch's batches, for methods that look before they train."""
    for images, labels in batches(crops, 0):
        yield old(images, maps=method.maps), labels


def _check_finite(terms: LossTerms, job: StepJob, epoch: int, position: Position, best: Path) -> None:
    bad = [name for name, value in terms.items() if not math.isfinite(value.item())]
    if bad:
        last = f"the best network so far is in {best}" if best.exists() else "no epoch was finished yet"
        raise TrainingError(
            f"step {job.index}, epoch {epoch}, iteration {position.iteration}: the loss term {', '.join(bad)} "
            f"is not finite; {last}",
            "Lower training.lr or the method's weights and start a new run in another folder.",
        )
