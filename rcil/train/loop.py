"""The training loop of one step, top to bottom."""

from __future__ import annotations

import contextlib
import itertools
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.nn.parallel import DistributedDataParallel

from rcil.checkpoint.file import load, save
from rcil.checkpoint.metadata import Metadata
from rcil.data.types import Sample, SegmentationData
from rcil.errors import TrainingError
from rcil.evaluate import EvalReport, as_report, measure
from rcil.methods import LossTerms, Method, StepInfo
from rcil.nn import Maps, Segmenter, fold
from rcil.nn.settle import settle_norms
from rcil.nn.sync import synchronise_norms
from rcil.train.loader import Batch, Crops, Share, batches
from rcil.train.memory import check_memory, peak_memory, weights_on
from rcil.train.processes import ALONE, Processes
from rcil.train.state import Position, StepState
from rcil.train.task import TrainingSection

FINISHING_IMAGES = 200
"""Of a step, about as many are looked at before and after it."""
DTYPES = {"fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}


@dataclass(frozen=True)
class Event:
    """What happened, for progress displays and logs."""

    step: int
    epoch: int
    epochs: int
    iteration: int
    iterations: int
    terms: dict[str, float]
    images: int = 0
    """Of this iteration, over all processes."""
    lr: float = 0.0
    miou: float | None = None
    """Of the held-out images, at the end of an epoch."""
    looked: tuple[int, int] | None = None
    """How many of how many whole images the method has seen, before the first epoch or after the last."""


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
    """Size at which the network sees images, as a factor."""
    folder: Path
    processes: Processes = ALONE


def train_step(
    job: StepJob, student: Segmenter, teacher: Segmenter | None, method: Method, listen: Listener
) -> Segmenter:
    """Train `student` and return the network of its best epoch, finished by the method.

    Continues by itself if the folder holds a state.

    The processes of a job compute pieces of the same batches with the same random draws, so that together they do what
    one process would do; the first one alone writes.
    """
    settings, later, processes = job.settings, min(job.index, 1), job.processes
    epochs = settings.epochs[later]
    iterations = len(job.crops.order(0))
    share = Share(processes.rank, processes.count, settings.accumulate)
    method.sum_over_processes = processes.sum
    old = fold(teacher)[0] if teacher is not None and method.needs_teacher else None
    student = _placed(student, job)
    old = None if old is None else _placed(old, job)
    piece = settings.batch // (processes.count * settings.accumulate)
    needed = peak_memory(student, old, piece, settings) - weights_on(processes.device, (student, old))
    check_memory(needed, processes.device, settings, job.index)
    if processes.count > 1:
        student = synchronise_norms(student)
    network = _distributed(student, processes)
    state = _new_state(student, method, job, epochs * iterations)
    saved, best = job.folder / "state.pt", job.folder / "best.safetensors"
    if saved.exists():
        state.load(saved)
    elif old is not None:
        method.start(student, old, job.info, _whole(job, listen, Event(job.index, 0, epochs, 0, iterations, {})))
        method.prepare(_seen_by(old, method, job, share), job.info, student)
    position = state.position

    for epoch in range(position.epoch, epochs):
        method.set_training(student)
        for pieces in batches(job.crops, epoch, position.iteration, share):
            lr = float(state.schedule.get_last_lr()[0])
            numbers = _learn(network, old, state, pieces, job)
            _check_finite(numbers, job, epoch, position, best)
            _update(state)
            position.iteration += 1
            position.rows.append({"epoch": epoch, "iteration": position.iteration, "lr": lr, **numbers})
            listen(Event(job.index, epoch, epochs, position.iteration, iterations, numbers, settings.batch, lr))
            if processes.leads and position.iteration % settings.save_every == 0:
                state.save(saved)
        position.epoch, position.iteration = epoch + 1, 0
        if position.epoch % settings.validate_every == 0 or position.epoch == epochs:
            if settings.settle:
                settle_norms(student, _images(job, epoch, share))
            miou = evaluate_together(student.eval(), job.metadata, job.data, job.validation, job.scale, processes).all
            if miou > position.best_miou:
                position.best_miou, position.best_epoch = miou, epoch
                if processes.leads:
                    save(best, student, job.metadata)
            position.rows.append({"epoch": epoch, "iteration": iterations, "held_out_miou": miou})
            listen(Event(job.index, epoch, epochs, iterations, iterations, {}, miou=miou))
        if processes.leads:
            state.save(saved)
    processes.wait()
    end = Event(job.index, epochs - 1, epochs, iterations, iterations, {})
    return method.finish(load(best)[0], teacher, job.info, _whole(job, listen, end))


def evaluate_together(
    model: Segmenter,
    metadata: Metadata,
    data: SegmentationData,
    samples: tuple[Sample, ...],
    scale: float,
    processes: Processes,
) -> EvalReport:
    """`rcil.evaluate.evaluate`, every process with its share of the samples; all get the same report."""
    confusion = measure(model, metadata, data, samples[processes.rank :: processes.count], scale=scale)
    confusion.matrix = processes.sum_array(confusion.matrix)
    return as_report(confusion, metadata, data, len(samples))


def _placed(model: Segmenter, job: StepJob) -> Segmenter:
    """On the job's device, in its memory layout."""
    return model.to(job.processes.device).to(memory_format=_layout(job))  # type: ignore[no-any-return, call-overload]


def _layout(job: StepJob) -> torch.memory_format:
    return torch.channels_last if job.settings.channels_last else torch.contiguous_format


def _distributed(student: Segmenter, processes: Processes) -> Segmenter | DistributedDataParallel:
    """What averages gradients over the processes."""
    if processes.count == 1:
        return student
    devices = [processes.device] if processes.device.type == "cuda" else None
    return DistributedDataParallel(student, device_ids=devices)


def _new_state(model: Segmenter, method: Method, job: StepJob, total: int) -> StepState:
    """Optimiser and schedule over what trains: the frozen branch has neither gradient nor optimiser state."""
    settings = job.settings
    optimiser = _optimiser(_groups(model, settings, min(job.index, 1)), settings)
    schedule = torch.optim.lr_scheduler.PolynomialLR(optimiser, total, power=settings.power)
    scaler = torch.amp.GradScaler(job.processes.device.type, enabled=settings.precision == "fp16")
    return StepState(model, optimiser, schedule, scaler, method, Position())


def _groups(model: Segmenter, settings: TrainingSection, later: int) -> list[dict[str, Any]]:
    """What trains, with its learning rate: the classifier may have one of its own."""
    lr = settings.lr[later]
    trained = {name: p for name, p in model.named_parameters() if p.requires_grad}
    rows = [p for name, p in trained.items() if name.startswith("classifier.")]
    body = [p for name, p in trained.items() if not name.startswith("classifier.")]
    groups = [{"params": body, "lr": lr}, {"params": rows, "lr": lr * settings.classifier_lr}]
    return [group for group in groups if group["params"]]


def _optimiser(groups: list[dict[str, Any]], settings: TrainingSection) -> torch.optim.Optimizer:
    if settings.optimiser == "adamw":
        return torch.optim.AdamW(groups, weight_decay=settings.weight_decay)
    nesterov = settings.momentum > 0
    return torch.optim.SGD(groups, momentum=settings.momentum, nesterov=nesterov, weight_decay=settings.weight_decay)


def _learn(
    network: Segmenter | DistributedDataParallel,
    old: Segmenter | None,
    state: StepState,
    pieces: list[Batch],
    job: StepJob,
) -> dict[str, float]:
    """Gradients of a batch; returns the loss terms, averaged over its pieces and over the processes.

    Processes exchange gradients once, with the last piece.
    """
    state.optimiser.zero_grad(set_to_none=True)
    sums: dict[str, Tensor] = {}
    for place, (images, labels) in enumerate(pieces, 1):
        waits = isinstance(network, DistributedDataParallel) and place < len(pieces)
        with network.no_sync() if waits else contextlib.nullcontext():  # type: ignore[operator]
            terms = _forward(network, old, state.method, images, labels, job)
            state.scaler.scale(terms.total / len(pieces)).backward()  # type: ignore[no-untyped-call]
        for name, value in terms.items():
            sums[name] = sums.get(name, 0) + value.detach()
    parts = len(pieces) * job.processes.count
    means = job.processes.sum(torch.stack(list(sums.values()))) / parts
    return dict(zip(sums, means.tolist(), strict=True))


def _update(state: StepState) -> None:
    """Move the weights. Where the scaler found its scale too large nothing moves, and the schedule waits too."""
    before = state.scaler.get_scale()
    state.scaler.step(state.optimiser)
    state.scaler.update()
    if state.scaler.get_scale() >= before:
        state.schedule.step()


def _forward(
    student: Segmenter | DistributedDataParallel,
    old: Segmenter | None,
    method: Method,
    images: Tensor,
    labels: Tensor,
    job: StepJob,
) -> LossTerms:
    """Run teacher and student and hand their maps to the method; losses leave autocast by themselves."""
    images, labels = _moved(images, labels, job)
    precision = job.settings.precision
    with torch.autocast(images.device.type, DTYPES[precision], enabled=precision != "fp32"):
        before = None
        if old is not None:
            with torch.no_grad():
                before = old(images, maps=method.maps)
        return method.terms(student(images, maps=method.maps), before, labels, job.info)


def _moved(images: Tensor, labels: Tensor, job: StepJob) -> Batch:
    device = job.processes.device
    images = images.to(device, non_blocking=True).contiguous(memory_format=_layout(job))
    return images, labels.to(device, non_blocking=True)


def _images(job: StepJob, epoch: int, share: Share) -> Iterator[Tensor]:
    """The first batches of an epoch, as many as norms settle on, piece by piece."""
    for pieces in itertools.islice(batches(job.crops, epoch, share=share), job.settings.settle):
        for piece in pieces:
            yield _moved(*piece, job)[0]


def _whole(job: StepJob, listen: Listener, now: Event) -> Iterator[Batch]:
    """Training images as they are, some of them, evenly spread; `listen` hears how many a method has taken `now`."""
    count = len(job.crops)
    places = range(0, count, max(1, count // FINISHING_IMAGES))
    for taken, place in enumerate(places, 1):
        yield job.crops.whole(place, job.scale)
        listen(replace(now, looked=(taken, len(places))))


@torch.no_grad()
def _seen_by(old: Segmenter, method: Method, job: StepJob, share: Share) -> Iterator[tuple[Maps, Tensor]]:
    """The teacher's maps of the first epoch's batches, for methods that look before they train."""
    for pieces in batches(job.crops, 0, share=share):
        for piece in pieces:
            images, labels = _moved(*piece, job)
            yield old(images, maps=method.maps), labels


def _check_finite(terms: dict[str, float], job: StepJob, epoch: int, position: Position, best: Path) -> None:
    bad = [name for name, value in terms.items() if not math.isfinite(value)]
    if bad:
        last = f"the best network so far is in {best}" if best.exists() else "no epoch was finished yet"
        raise TrainingError(
            f"step {job.index}, epoch {epoch}, iteration {position.iteration}: the loss term {', '.join(bad)} "
            f"is not finite; {last}",
            "Lower training.lr or the method's weights and start a new run in another folder.",
        )
