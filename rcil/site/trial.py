"""Measure how long the parts of a step take on this machine, with its own networks, losses and images."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from statistics import median

import torch
from torch.utils.data import default_collate

from rcil.data.types import Sample, SegmentationData
from rcil.hardware.processes import Processes
from rcil.inference import Model
from rcil.methods import Method
from rcil.nn import Network
from rcil.nn.freeze import freeze_stages, set_frozen_modes
from rcil.site.forgetting import Pair, compare
from rcil.site.schedule import Costs
from rcil.training.loader import Batch, Share
from rcil.training.loop import StepJob, _learn, _moved, _new_state, _placed, looked_at, needed_memory
from rcil.training.memory import check_memory, weights_on

WARMUP, MIN_TIMED, MAX_TIMED = 2, 2, 7
"""Iterations that are not timed, and those that are. Their lower quartile counts, because a short trial is easily
disturbed, and an estimate that is too high costs iterations."""
MAX_SECONDS = 15.0
"""After this time no further iteration is timed."""
IMAGES = 3
"""Whole images that are timed."""


def measure_costs(
    job: StepJob,
    student: Network,
    previous: Model,
    method: Method,
    evaluated: tuple[SegmentationData, Sequence[Sample]],
) -> tuple[Costs, int]:
    """Seconds of the parts of a step, and the bytes that its training needs.

    Args:
        job: The step.
        student: The network at the start of the step; it is changed.
        previous: The model that the step starts from.
        method: The method; its state is changed.
        evaluated: The images on which both models will be compared, and their dataset.
    """
    settings, device = job.settings, job.processes.device
    gpus = [device] if device.type == "cuda" else []
    old = _placed(previous.folded.network, job) if method.needs_teacher else None
    freeze_stages(student, settings.freeze_stages)
    student = _placed(student, job)
    memory = needed_memory(student, old, job)
    check_memory(memory - weights_on(device, (student, old)), device, settings, job.index)
    with torch.random.fork_rng(devices=gpus):
        iteration = _iteration(job, student, old, method)
        looks, looked, fitted = _looking(job, student, old, previous, method)
    data, samples = evaluated
    pair = Pair(previous, previous, data, job.scale)
    compared = _per_image((partial(compare, pair, [sample], ()) for sample in samples[:IMAGES]), device)
    return Costs(iteration, looked, looks, fitted, compared / 2, compared), memory


def _iteration(job: StepJob, student: Network, old: Network | None, method: Method) -> float:
    """Seconds of one iteration with everything that belongs to it."""
    settings, processes = job.settings, job.processes
    share = Share(processes.rank, processes.count, settings.accumulate)
    start = time.perf_counter()
    pieces: list[Batch] = []
    for piece in share.pieces(job.crops.order(0)[0]):
        images, labels = default_collate([job.crops[0, index] for index in piece])
        pieces.append((images, labels))
    loading = time.perf_counter() - start
    state = _new_state(student, method, job, WARMUP + MAX_TIMED + 1)
    if old is not None:
        with torch.no_grad():
            there = [_moved(*piece, job) for piece in pieces]
            method.prepare([(old(images, maps=method.maps), labels) for images, labels in there], job.info, student)
    alone = replace(job, processes=Processes(0, 1, processes.device))  # processes may time more or fewer iterations
    method.set_training(student)
    set_frozen_modes(student, settings.freeze_stages)

    def iterate() -> None:
        _learn(student, old, state, pieces, alone)
        state.scaler.step(state.optimiser)
        state.scaler.update()
        if state.average is not None:
            state.average.update(student)

    times: list[float] = []
    while len(times) < WARMUP + (MIN_TIMED if sum(times) > MAX_SECONDS else MAX_TIMED):
        times.append(_seconds(iterate, processes.device))
    timed = sorted(times[WARMUP:])
    computing = timed[len(timed) // 4]
    if processes.device.type == "cpu" or not settings.workers:
        return computing + loading  # loading processes compete for the cores
    return max(computing, loading / settings.workers)


def _looking(
    job: StepJob, student: Network, old: Network | None, previous: Model, method: Method
) -> tuple[int, float, float]:
    """How often the method looks at whole images, and the seconds per image of each look and of all that it then fits.

    Methods look at them before the training, after it once or twice, or never.
    """
    numbers, device = looked_at(len(job.crops), IMAGES)[:IMAGES], job.processes.device
    looks, looked, fitted = 0, [0.0], 0.0

    @dataclass(frozen=True)
    class Whole:
        """Whole images, read anew in every iteration, and the times that reading and first use of each take."""

        times: list[float]

        def __iter__(self) -> Iterator[Batch]:
            for number in numbers:
                begun = time.perf_counter()
                yield job.crops.whole(number, job.scale)
                _synchronise(device)
                self.times.append(time.perf_counter() - begun)

    def start(images: Iterable[Batch]) -> None:
        if old is not None:
            method.start(student, old, job.info, images)

    def finish(images: Iterable[Batch]) -> None:
        method.finish(student, previous.network, old, job.info, images)

    for call in (start, finish):
        times: list[float] = []
        seconds = _seconds(partial(call, Whole(times)), device)
        if times:
            fitted += (seconds - sum(times)) / len(numbers)
            looks, looked = looks + len(times) // len(numbers), times
    return looks, median(looked), fitted


def _per_image(calls: Iterable[Callable[[], object]], device: torch.device) -> float:
    """Median seconds of some calls; the first one is made twice, because it also warms up."""
    times: list[float] = []
    for call in calls:
        if not times:
            call()
        times.append(_seconds(call, device))
    return median(times)


def _seconds(call: Callable[[], object], device: torch.device) -> float:
    start = time.perf_counter()
    call()
    _synchronise(device)
    return time.perf_counter() - start


def _synchronise(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)  # kernels run asynchronously
