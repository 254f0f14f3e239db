"""Train one step, and compute embeddings and predictions."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from rcil.classify.data import Images, LabelledImages
from rcil.classify.loader import draw_batches, in_order, read_batches
from rcil.classify.methods import ClassifyMethod, HeadSizes
from rcil.classify.network import ImageClassifier, fold_classifier
from rcil.classify.state import Phase, PhaseState
from rcil.classify.task import TrainingSection
from rcil.core.errors import TrainingError
from rcil.core.interrupts import deferred
from rcil.nn.recalibrate_norms import recalibrate_norms
from rcil.training.loop import Event, Listener
from rcil.training.skipping import not_finite

SCALE_LR = 0.01
CPU = torch.device("cpu")
CHUNK = 256
"""Batch size of inference."""


@dataclass(frozen=True)
class StepJob:
    """Everything that the training of one step needs."""

    index: int
    heads: HeadSizes
    method: ClassifyMethod
    settings: TrainingSection
    generator: torch.Generator
    """Draws the order, shifts and flips of the images."""
    listen: Listener
    device: torch.device = CPU
    """Device of the network. Images are augmented on the CPU, so that all devices see the same."""
    saved: Path | None = None
    """The file that an interrupt writes the state to; if it exists, the step continues from it."""

    @property
    def lr(self) -> float:
        """Learning rate of this step."""
        return self.settings.lr[min(self.index, 1)]

    @property
    def iterations(self) -> int:
        """Iterations of this step, without the fine-tuning on the memory."""
        return self.settings.iterations[min(self.index, 1)]


def train_step(job: StepJob, student: ImageClassifier, teacher: ImageClassifier | None, data: LabelledImages) -> None:
    """Train `student` on the images of a step and of the memory."""
    student.train()
    trained = [p for p in student.parameters() if p.requires_grad]
    _optimise(job, student, teacher, data, trained, job.lr, "train")


def tune(job: StepJob, student: ImageClassifier, teacher: ImageClassifier | None, memory: LabelledImages) -> None:
    """Fine-tune on the memory, which has equally many images of every class."""
    trained = job.method.set_tuning(student)
    _optimise(job, student, teacher, memory, trained, job.lr * job.method.tune_lr, "tune")


def recalibrate(job: StepJob, student: ImageClassifier, data: LabelledImages) -> None:
    """Recalibrate batch norm on `training.settle` batches of the step."""
    if job.settings.settle:
        batches = _batches(data, job.settings.settle, job)
        recalibrate_norms(student, (images for images, _ in batches))


def _optimise(
    job: StepJob,
    student: ImageClassifier,
    teacher: ImageClassifier | None,
    data: LabelledImages,
    trained: list[nn.Parameter],
    lr: float,
    phase: Phase,
) -> None:
    settings = job.settings
    before_phase, iterations = (0, job.iterations) if phase == "train" else (job.iterations, settings.tune_iterations)
    optimiser = torch.optim.SGD(
        _groups(trained, lr),
        momentum=settings.momentum,
        nesterov=settings.momentum > 0,
        weight_decay=settings.weight_decay,
    )
    schedule = torch.optim.lr_scheduler.PolynomialLR(optimiser, max(iterations, 1), power=settings.power)
    old = None if teacher is None else fold_classifier(teacher)[0]
    total = job.iterations + (settings.tune_iterations if job.index else 0)
    state = PhaseState(phase, student, optimiser, schedule, job.generator)
    with state.continued(job.saved):
        first = before_phase + state.done + 1
        for iteration, (images, labels) in enumerate(_batches(data, iterations, job, state.done), first):
            with deferred():
                with torch.no_grad():
                    before = None if old is None else old(images, maps="before")
                terms = job.method.terms(student(images, maps="before"), before, labels, job.heads)
                values = torch.stack([value.detach() for value in terms.values()]).tolist()
                numbers = dict(zip(terms, values, strict=True))
                _check_finite(numbers, job.index, iteration)
                optimiser.zero_grad(set_to_none=True)
                terms.total.backward()  # type: ignore[no-untyped-call]
                optimiser.step()
                rate = float(schedule.get_last_lr()[0])
                schedule.step()
                state.done += 1
                job.listen(Event(job.index, 0, 1, iteration, total, numbers, len(images), rate))


def _groups(trained: list[nn.Parameter], lr: float) -> list[dict[str, Any]]:
    """Parameter groups with their learning rates. The scale of a cosine head, a scalar, gets a lower rate.

    At the rate of the weights, the margin of NCA would shrink the scale to zero before the classes separate.
    """
    weights, scales = ([p for p in trained if (p.ndim > 0) == wanted] for wanted in (True, False))
    groups: list[dict[str, Any]] = [{"params": weights, "lr": lr}]
    return [*groups, {"params": scales, "lr": SCALE_LR * lr, "weight_decay": 0.0}] if scales else groups


def _batches(data: LabelledImages, iterations: int, job: StepJob, first: int = 0) -> Iterator[tuple[Tensor, Tensor]]:
    """Normalised images [N, 3, S, S] and labels [N] on the device; all images are used once before any repeats.

    The first `first` batches are drawn and left out.
    """
    settings, labels = job.settings, torch.from_numpy(data.labels)
    draws = itertools.islice(draw_batches(len(labels), iterations, settings, job.generator), first, None)
    for images, picked in read_batches(data.images, draws, workers=settings.workers, shift=settings.shift):
        yield images.to(job.device, non_blocking=True), labels[picked].to(job.device, non_blocking=True)


@torch.no_grad()
def embed(model: ImageClassifier, images: Images, workers: int = 0) -> Tensor:
    """Embeddings [N, C] of images [N, S, S, 3] in evaluation mode, on the CPU."""
    model.eval()
    return torch.cat([model(part, maps="before").embedding.cpu() for part in _parts(model, images, workers)])


@torch.no_grad()
def predict(model: ImageClassifier, images: Images, workers: int = 0) -> Tensor:
    """Predicted rows [N] of images [N, S, S, 3], on the CPU."""
    model.eval()
    return torch.cat([model(part).argmax(dim=1).cpu() for part in _parts(model, images, workers)])


def _parts(model: ImageClassifier, images: Images, workers: int) -> Iterator[Tensor]:
    """Images as normalised batches on the device of the network."""
    device = next(model.parameters()).device
    parts = read_batches(images, in_order(len(images), CHUNK), workers=workers)
    return (part.to(device, non_blocking=True) for part, _ in parts)


def _check_finite(terms: dict[str, float], step: int, iteration: int) -> None:
    if bad := not_finite(terms):
        raise TrainingError(
            f"step {step}, iteration {iteration}: the loss term {', '.join(bad)} is not finite",
            "Lower training.lr or the method's weights and start a new run in another folder.",
        )
