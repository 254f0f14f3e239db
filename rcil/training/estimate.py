"""Estimate the memory (from tensor shapes) and time (from a short trial) of a run."""

from __future__ import annotations

import time
from dataclasses import dataclass

import torch

from rcil.core.log import log
from rcil.hardware.processes import device_for
from rcil.methods import Method, check_names, make_method
from rcil.nn import Network, fold
from rcil.nn.cost import cost
from rcil.nn.fold import duplicate
from rcil.tasks.compatibility import check_compatible
from rcil.tasks.plan import Plan, make_plan
from rcil.tasks.task import Task
from rcil.training.loader import epoch_order
from rcil.training.memory import peak_memory
from rcil.training.run import check_pieces, first_network, missing_weights, random_network

TRIAL_IMAGES, TRIAL_SIZE = 2, 256


@dataclass(frozen=True)
class StepEstimate:
    """The estimate of one step."""

    step: int
    teaches: tuple[str, ...]
    images: int
    iterations: int
    memory: int
    """Peak bytes of one process, without torch itself."""
    seconds: float


def estimate(task: Task, processes: int = 1) -> list[StepEstimate]:
    """Estimate the images, iterations, memory and time of every step.

    The time is measured on a few images with the network of step 0 and scaled by multiply-accumulates; later steps are
    assumed to cost as much as step 1. Loading images is not included, as it runs in parallel.
    """
    settings = task.training
    check_pieces(settings.batch, settings.accumulate, processes)
    device = device_for(settings.device)
    check_compatible(task.network.norm, settings.precision, device)
    method = make_method(task.method.name, **task.method.options)
    check_names(task.method.lr)
    plan = make_plan(task, joint=method.sees_all_data, record=False)
    pieces = settings.batch // (settings.accumulate * processes)
    students, teachers = _networks(task, plan, method)
    size = min(settings.crop, TRIAL_SIZE)
    per_image = _trial(students[0], size, device) * (settings.crop / size) ** 2
    work = [_work(s, t) for s, t in zip(students, teachers, strict=True)]
    memory = [peak_memory(s, t, pieces, settings) for s, t in zip(students, teachers, strict=True)]
    result = []
    for step in plan.steps:
        kind = min(step.step.index, 1)
        images = len(step.train) + (len(step.memory) if settings.memory_share is None else 0)
        epoch = epoch_order(images, settings.batch, (0, 0), 0, settings.epoch_images)
        iterations = settings.epochs[kind] * len(epoch)
        seconds = iterations * settings.batch / processes * per_image * work[kind] / work[0]
        result.append(StepEstimate(step.step.index, step.teaches, len(step.train), iterations, memory[kind], seconds))
    return result


def _networks(task: Task, plan: Plan, method: Method) -> tuple[list[Network], list[Network | None]]:
    """Student and teacher of step 0 and, if it exists, of step 1."""
    missing = missing_weights(task.network)
    if missing is not None:
        log.warning("%s. %s", missing.message, missing.hint)
    first = (first_network if missing is None else random_network)(task, method, plan.steps[0])
    if len(plan.steps) == 1:
        return [first], [None]
    teacher = fold(first)[0] if method.needs_teacher else None
    return [first, method.begin(first, plan.steps[1].names)], [None, teacher]


def _work(student: Network, teacher: Network | None) -> float:
    """Multiply-accumulates per image: forward and backward (twice the forward pass); the teacher only runs forward."""
    return 3 * cost(student).macs + (cost(teacher).macs if teacher is not None else 0)


def _trial(model: Network, size: int, device: torch.device) -> float:
    """Seconds per image, forward and backward; the faster of two trials, since the first one warms up."""
    times = []
    copied = duplicate(model, {}).to(device).train()
    gpus = [device] if device.type == "cuda" else []
    with torch.random.fork_rng(devices=gpus):
        for _ in range(2):
            images = torch.randn(TRIAL_IMAGES, 3, size, size).to(device)
            start = time.perf_counter()
            copied(images).mean().backward()
            for gpu in gpus:
                torch.cuda.synchronize(gpu)  # kernels run asynchronously
            times.append(time.perf_counter() - start)
    return min(times) / TRIAL_IMAGES


def duration(seconds: float) -> str:
    """Format a duration: `2 h 05 min`, `3 min 20 s` or `12 s`."""
    whole = round(seconds)
    if whole >= 3600:
        return f"{whole // 3600} h {whole % 3600 // 60:02d} min"
    return f"{whole // 60} min {whole % 60:02d} s" if whole >= 60 else f"{whole} s"
