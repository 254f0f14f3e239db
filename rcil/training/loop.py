"""The training loop of one step, top to bottom."""

from __future__ import annotations

import contextlib
import itertools
import signal
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.nn.parallel import DistributedDataParallel

from rcil.checkpoint.file import load, save
from rcil.core.errors import ConfigError, TrainingError
from rcil.core.interrupts import Interrupted, deferred, immediate, requested
from rcil.core.log import log, stage
from rcil.data.types import Sample, SegmentationData
from rcil.evaluation.evaluate import EvalReport, as_report, measure
from rcil.hardware.processes import ALONE, Processes, cudnn_tuned
from rcil.inference import Model
from rcil.losses.class_weights import class_weights
from rcil.methods import LossTerms, Method, StepInfo
from rcil.model.metadata import Metadata
from rcil.nn import Maps, Network
from rcil.nn.freeze import freeze_stages, set_frozen_modes
from rcil.nn.recalibrate_norms import recalibrate_norms
from rcil.nn.units.sync import synchronise_norms
from rcil.tasks.task import TrainingSection
from rcil.training.average import WeightAverage
from rcil.training.loader import Batch, Crops, Share, batches
from rcil.training.memory import check_memory, peak_memory, weights_on
from rcil.training.optimiser import make_optimiser, make_schedule, parameter_groups
from rcil.training.skipping import MAX_OVERFLOWS_IN_A_ROW, Undo, not_finite
from rcil.training.state import Position, StepState

STOP = "stop"
"""Not a loss term: whether a process was asked to stop; see `_learn`."""
DTYPES = {"fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}


@dataclass(frozen=True)
class Event:
    """Progress of a training, for displays and logs."""

    step: int
    epoch: int
    epochs: int
    iteration: int
    iterations: int
    terms: dict[str, float]
    images: int = 0
    """Images of this iteration, over all processes."""
    lr: float = 0.0
    miou: float | None = None
    """Mean IoU of the held-out images, after a validation."""
    processed: tuple[int, int] | None = None
    """Processed whole images and their total, before the first epoch or after the last."""
    finished: bool = False
    """Whether this is the end of an epoch that is not validated."""

    @property
    def done(self) -> int:
        """Finished iterations of the step."""
        return self.epoch * self.iterations + self.iteration

    @property
    def total(self) -> int:
        """All iterations of the step."""
        return self.epochs * self.iterations


Listener = Callable[[Event], None]


@dataclass(frozen=True)
class StepJob:
    """Everything that the training of one step needs."""

    index: int
    info: StepInfo
    metadata: Metadata
    crops: Crops
    data: SegmentationData
    validation: tuple[Sample, ...]
    settings: TrainingSection
    scale: float
    """Factor by which images are resized for the network."""
    folder: Path
    processes: Processes = ALONE
    test_crop: int | None = None
    """See `DataSection`."""


def train_step(job: StepJob, student: Network, previous: Model | None, method: Method, listen: Listener) -> Network:
    """Train `student` and return the network of its best or last epoch, finished by the method.

    The teacher is the folded form of `previous`, the model that the step started from.

    Training continues from the saved state if the folder has one.

    All processes compute pieces of the same batches with the same random draws, so that together they compute what one
    process would; only the first one writes files.
    """
    settings, later, processes = job.settings, min(job.index, 1), job.processes
    epochs = settings.epochs[later]
    frozen = settings.freeze_stages if later else 0
    iterations = len(job.crops.order(0))
    share = Share(processes.rank, processes.count, settings.accumulate)
    method.sum_over_processes = processes.sum
    method.known = None if previous is None else previous.metadata.features
    old = previous.folded.network if previous is not None and method.needs_teacher else None
    job = replace(job, info=replace(job.info, weights=_class_weights(job, method)))
    freeze_stages(student, frozen)
    student = _placed(student, job)
    old = None if old is None else _placed(old, job)
    needed = needed_memory(student, old, job) - weights_on(processes.device, (student, old))
    check_memory(needed, processes.device, settings, job.index)
    if processes.count > 1:
        student = synchronise_norms(student)
    network = _distributed(student, processes)
    state = _new_state(student, method, job, epochs * iterations)
    saved, best = job.folder / "state.pt", job.folder / f"{settings.keep}.safetensors"
    if saved.exists():
        state.load(saved)
    elif old is not None:
        method.start(student, old, job.info, WholeImages(job, listen, Event(job.index, 0, epochs, 0, iterations, {})))
        method.prepare(_seen_by(old, method, job, share), job.info, student)
    position = state.position
    undo = Undo(student, method) if settings.precision == "fp16" else None

    with _saved_if_interrupted(state, saved, processes):
        for epoch in range(position.epoch, epochs):
            method.set_training(student)
            set_frozen_modes(student, frozen)
            for pieces in _pieces(job, epoch, share, position.iteration):
                with deferred():
                    lr = float(state.schedule.get_last_lr()[0])
                    if undo is not None:
                        undo.remember()
                    with cudnn_tuned(processes.device):
                        numbers = _learn(network, old, state, pieces, job)
                    stop = numbers.pop(STOP, None) is not None
                    if bad := not_finite(numbers):
                        _skip(bad, undo, job, epoch, position, best)
                        numbers = {}
                    else:
                        _update(state, job, epoch, best)
                    position.iteration += 1
                    position.rows.append({"epoch": epoch, "iteration": position.iteration, "lr": lr, **numbers})
                    listen(Event(job.index, epoch, epochs, position.iteration, iterations, numbers, settings.batch, lr))
                    if stop:
                        raise Interrupted(requested() or signal.SIGTERM)
                    if processes.leads and position.iteration % settings.save_every == 0:
                        state.save(saved)
            with deferred():
                seen = _end_epoch(state, job, epoch, share)
                miou = _keep(state, job, epoch, seen, best)
                if miou is not None:
                    position.rows.append({"epoch": epoch, "iteration": iterations, "held_out_miou": miou})
                listen(Event(job.index, epoch, epochs, iterations, iterations, {}, miou=miou, finished=miou is None))
                if processes.leads:
                    state.save(saved)
    processes.wait()
    before = None if previous is None else previous.network
    return method.finish(load(best)[0].to(processes.device), before, old, job.info, WholeImages(job, listen, _end(job)))


def finish_first_step(job: StepJob, trained: Network, method: Method, listen: Listener) -> Network:
    """The network of step 0, finished by the method, where another run has trained it."""
    method.sum_over_processes = job.processes.sum
    return method.finish(trained.to(job.processes.device), None, None, job.info, WholeImages(job, listen, _end(job)))


def _end(job: StepJob) -> Event:
    """The end of the last epoch."""
    epochs, iterations = job.settings.epochs[min(job.index, 1)], len(job.crops.order(0))
    return Event(job.index, epochs - 1, epochs, iterations, iterations, {})


def needed_memory(student: Network, old: Network | None, job: StepJob) -> int:
    """Peak bytes that training the step needs in one process; see `peak_memory`."""
    settings = job.settings
    return peak_memory(student, old, settings.batch // (job.processes.count * settings.accumulate), settings)


def _class_weights(job: StepJob, method: Method) -> Tensor | None:
    """Weight of every classifier row in the cross entropy, from the training masks of the step."""
    kind = job.settings.class_weights
    if kind == "none":
        return None
    if not method.weighs_classes:
        raise ConfigError(
            f"training.class_weights has no effect on {job.metadata.method}, which trains one sigmoid per class",
            "Set training.class_weights=none.",
        )
    with stage("counting of pixels"):
        weights = class_weights(kind, job.crops.count_pixels(job.info.classes))
    return None if weights is None else torch.tensor(weights, device=job.processes.device)


@contextlib.contextmanager
def _saved_if_interrupted(state: StepState, saved: Path, processes: Processes) -> Iterator[None]:
    """Save the state of the last finished iteration if the block is interrupted.

    Several processes stop after the same iteration, which they agree on with the loss terms. Until then, the others
    would wait for a process that stopped by itself.
    """
    try:
        with deferred() if processes.count > 1 else contextlib.nullcontext():
            yield
    except Interrupted:
        if processes.leads:
            state.save(saved)
        raise
    except RuntimeError as error:  # the connection to a process that has stopped is lost
        if processes.count > 1 and (number := requested()):
            raise Interrupted(number) from error
        raise


def _end_epoch(state: StepState, job: StepJob, epoch: int, share: Share) -> EvalReport | None:
    """Move on to the next epoch, and evaluate the network on the held-out images if it is time to.

    An interrupt here goes back to the last iteration of the epoch, so that a resumed run validates it.
    """
    settings = job.settings
    epochs = settings.epochs[min(job.index, 1)]
    is_last, is_validated = epoch + 1 == epochs, settings.validates(epoch + 1, epochs)
    with state.unchanged_if_interrupted(), immediate():
        if settings.settle and (is_last or is_validated):
            recalibrate_norms(state.kept, _images(job, epoch, share))
        seen = _validate(state.kept.eval(), job) if is_validated else None
    state.position.epoch, state.position.iteration = epoch + 1, 0
    return seen


def _keep(state: StepState, job: StepJob, epoch: int, seen: EvalReport | None, best: Path) -> float | None:
    """Save the network if it is the one to keep so far; returns its mean IoU, None without validation."""
    position, settings = state.position, job.settings
    is_last = position.epoch == settings.epochs[min(job.index, 1)]
    if is_last if settings.keep == "last" else seen is not None and seen.all > position.best_miou:
        position.keep(epoch, seen)
        if job.processes.leads:
            save(best, state.kept, job.metadata)
    return None if seen is None else seen.all


def evaluate_together(
    model: Model,
    data: SegmentationData,
    samples: tuple[Sample, ...],
    scale: float,
    processes: Processes,
    *,
    test_crop: int | None = None,
    dtype: torch.dtype = torch.float32,
    pixels: int | None = None,
) -> EvalReport:
    """Evaluate a model with several processes, each on its share of the samples; all get the same report."""
    share = samples[processes.rank :: processes.count]
    confusion = measure(model, data, share, scale=scale, test_crop=test_crop, dtype=dtype, pixels=pixels)
    confusion.matrix = processes.sum_array(confusion.matrix)
    return as_report(confusion, model.metadata, data, len(samples))


def _validate(model: Network, job: StepJob) -> EvalReport:
    """Evaluate the held-out images, on a GPU in the precision and batch size of the training.

    On a CPU, images are evaluated one at a time in fp32, since larger batches are not faster.
    """
    settings, processes = job.settings, job.processes
    how: dict[str, Any] = {"test_crop": job.test_crop}
    if processes.device.type == "cuda":
        piece = settings.batch // (processes.count * settings.accumulate)
        how |= {"dtype": DTYPES[settings.precision], "pixels": piece * settings.crop**2}
    return evaluate_together(Model(model, job.metadata), job.data, job.validation, job.scale, processes, **how)


def _placed(model: Network, job: StepJob) -> Network:
    """Move a model to the device and memory format of the job."""
    return model.to(job.processes.device).to(memory_format=_layout(job))  # type: ignore[no-any-return, call-overload]


def _layout(job: StepJob) -> torch.memory_format:
    return torch.channels_last if job.settings.channels_last else torch.contiguous_format


def _distributed(student: Network, processes: Processes) -> Network | DistributedDataParallel:
    """Wrap the student so that gradients are averaged over the processes."""
    if processes.count == 1:
        return student
    devices = [processes.device] if processes.device.type == "cuda" else None
    return DistributedDataParallel(student, device_ids=devices)


def _new_state(model: Network, method: Method, job: StepJob, total: int) -> StepState:
    """Create optimiser and schedule for the trainable parameters, which the frozen branch has none of."""
    settings = job.settings
    later = min(job.index, 1)
    optimiser = make_optimiser(parameter_groups(model, settings, later), settings)
    schedule = make_schedule(optimiser, settings, total, round(total * settings.warmup / settings.epochs[later]))
    scaler = torch.amp.GradScaler(job.processes.device.type, enabled=settings.precision == "fp16")
    average = WeightAverage(model, settings.ema) if settings.ema else None
    return StepState(model, optimiser, schedule, scaler, method, Position(), average)


def _learn(
    network: Network | DistributedDataParallel, old: Network | None, state: StepState, pieces: list[Batch], job: StepJob
) -> dict[str, float]:
    """Compute the gradients of a batch; returns the loss terms, averaged over pieces and processes.

    Processes exchange gradients once, with the last piece. There is an entry STOP if one of several processes was asked
    to stop, which they tell each other with the loss terms.
    """
    state.optimiser.zero_grad(set_to_none=True)
    sums: dict[str, Tensor] = {}
    for number, (images, labels) in enumerate(pieces, 1):
        waits = isinstance(network, DistributedDataParallel) and number < len(pieces)
        with network.no_sync() if waits else contextlib.nullcontext():  # type: ignore[operator]
            terms = _forward(network, old, state.method, images, labels, job)
            state.scaler.scale(terms.total / len(pieces)).backward()  # type: ignore[no-untyped-call]
        for name, value in terms.items():
            sums[name] = sums.get(name, 0) + value.detach()
    if job.processes.count > 1:
        sums[STOP] = next(iter(sums.values())).new_full((), float(requested() is not None))
    parts = len(pieces) * job.processes.count
    means = job.processes.sum(torch.stack(list(sums.values()))) / parts
    numbers = dict(zip(sums, means.tolist(), strict=True))
    return {name: value for name, value in numbers.items() if name != STOP or value > 0}


def _update(state: StepState, job: StepJob, epoch: int, best: Path) -> None:
    """Update the weights. If the loss scale was too large, neither the weights nor the schedule advance.

    A hook tells whether the optimiser was called; asking the scaler for its scale would synchronise with the GPU.
    """
    moved: list[bool] = []
    hook = state.optimiser.register_step_post_hook(lambda *_: moved.append(True))
    state.scaler.step(state.optimiser)
    state.scaler.update()
    hook.remove()
    if moved:
        state.schedule.step()
        if state.average is not None:
            state.average.update(state.model)
    if not state.position.skipped.finite(moved=bool(moved)):
        what = f"the gradients overflowed in {MAX_OVERFLOWS_IN_A_ROW + 1} batches in a row"
        raise _diverged(what, job, epoch, state.position, best)


def _forward(
    student: Network | DistributedDataParallel,
    old: Network | None,
    method: Method,
    images: Tensor,
    labels: Tensor,
    job: StepJob,
) -> LossTerms:
    """Run teacher and student and pass their maps to the method; losses disable autocast themselves."""
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


def _pieces(job: StepJob, epoch: int, share: Share, first: int = 0) -> Iterator[list[Batch]]:
    """The batches of an epoch from `first` on, in pinned memory for a GPU."""
    return batches(job.crops, epoch, first, share, pinned=job.processes.device.type == "cuda")


def _images(job: StepJob, epoch: int, share: Share) -> Iterator[Tensor]:
    """The first batches of an epoch that norms are recalibrated on, piece by piece."""
    for pieces in itertools.islice(_pieces(job, epoch, share), job.settings.settle):
        for piece in pieces:
            yield _moved(*piece, job)[0]


@dataclass(frozen=True)
class WholeImages:
    """Evenly spread whole training images with their labels, read anew in every iteration.

    `listen` is told how many were taken.
    """

    job: StepJob
    listen: Listener
    now: Event

    def __iter__(self) -> Iterator[Batch]:
        job = self.job
        numbers = looked_at(len(job.crops), job.settings.finishing_images)
        for taken, number in enumerate(numbers, 1):
            yield job.crops.whole(number, job.scale)
            self.listen(replace(self.now, processed=(taken, len(numbers))))


def looked_at(count: int, wanted: int) -> range:
    """Indices of about `wanted` of `count` images, evenly spread: at least as many, and fewer than twice as many."""
    return range(0, count, max(1, count // wanted))


@torch.no_grad()
def _seen_by(old: Network, method: Method, job: StepJob, share: Share) -> Iterator[tuple[Maps, Tensor]]:
    """The teacher's maps of the batches of the first epoch, for methods with a `prepare` phase."""
    for pieces in _pieces(job, 0, share):
        for piece in pieces:
            images, labels = _moved(*piece, job)
            yield old(images, maps=method.maps), labels


def _skip(bad: list[str], undo: Undo | None, job: StepJob, epoch: int, position: Position, best: Path) -> None:
    """Skip a batch whose loss terms `bad` are not finite; raises unless the precision is fp16."""
    what = f"the loss term {', '.join(bad)} is not finite"
    if undo is None or not position.skipped.not_finite():
        if position.skipped.total:
            what += f" ({position.skipped.in_a_row} in a row, {position.skipped.total} in this step)"
        raise _diverged(what, job, epoch, position, best)
    undo.undo()
    if job.processes.leads:
        log.warning("%s: %s in fp16; the batch is skipped", _where(job, epoch, position), what)


def _diverged(what: str, job: StepJob, epoch: int, position: Position, best: Path) -> TrainingError:
    last = f"the best network so far is in {best}" if best.exists() else "no network was saved yet"
    remedy = "Lower training.lr or the method's weights and start a new run in another folder."
    if job.settings.precision == "fp16":
        remedy = "Set training.precision to bf16 or fp32 and start a new run in another folder, or lower training.lr."
    return TrainingError(f"{_where(job, epoch, position)}: {what}; {last}", remedy)


def _where(job: StepJob, epoch: int, position: Position) -> str:
    return f"step {job.index}, epoch {epoch}, iteration {position.iteration}"
