"""The two steps of the demo: a loop one can read, with the real networks and losses."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from rcil.checkpoint.metadata import IMAGENET_MEAN, IMAGENET_STD
from rcil.demo.scenes import CLASSES, Image, make_scene
from rcil.losses import pcd_paper, unbiased_cross_entropy, unbiased_distillation
from rcil.metrics import Confusion
from rcil.nn import Segmenter, fold

BATCH = 8
LAMBDA, GAMMA = 1.0, 0.001
"""For a small network, three old classes and a hundred iterations; the paper has 100 and 0.01 for ResNet-101 on VOC."""
Method = Literal["fine-tuning", "rcil"]
Progress = Callable[[int, float], None]


@dataclass(frozen=True)
class Step:
    """What is taught, and for how long."""

    taught: tuple[int, ...]
    """Class ids that are labelled; every other object is labelled background."""
    iterations: int
    learning_rate: float
    first_seed: int


def normalise(image: Image) -> Tensor:
    """[H, W, 3] uint8 RGB -> [3, H, W] with ImageNet's mean and deviation."""
    pixels = torch.from_numpy(image).permute(2, 0, 1).float() / 255
    return (pixels - torch.tensor(IMAGENET_MEAN).view(3, 1, 1)) / torch.tensor(IMAGENET_STD).view(3, 1, 1)


def batches(step: Step) -> Iterator[tuple[Tensor, Tensor]]:
    """Images [N, 3, H, W] and labels [N, H, W] that know only the taught classes."""
    for iteration in range(step.iterations):
        first = step.first_seed + iteration * BATCH
        scenes = [make_scene(seed) for seed in range(first, first + BATCH)]
        masks = torch.from_numpy(np.stack([mask for _, mask in scenes])).long()
        known = torch.isin(masks, torch.tensor(step.taught))
        yield torch.stack([normalise(image) for image, _ in scenes]), torch.where(known, masks, 0)


def train(model: Segmenter, step: Step, *, teacher: Segmenter | None, method: Method, progress: Progress) -> Segmenter:
    """Train `model` for one step; with `rcil` the folded teacher's knowledge is kept by MiB's losses and PCD."""
    old = fold(teacher)[0] if teacher is not None and method == "rcil" else None
    parameters = [p for p in model.parameters() if p.requires_grad]
    optimiser = torch.optim.SGD(parameters, step.learning_rate, momentum=0.9, nesterov=True, weight_decay=1e-4)
    schedule = torch.optim.lr_scheduler.PolynomialLR(optimiser, step.iterations, power=0.9)
    model.train()
    for iteration, (images, labels) in enumerate(batches(step)):
        loss = F.cross_entropy(model(images), labels) if old is None else _rcil_loss(model, old, images, labels)
        optimiser.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        optimiser.step()
        schedule.step()
        progress(iteration + 1, loss.item())
    return model.eval()


def _rcil_loss(model: Segmenter, old: Segmenter, images: Tensor, labels: Tensor) -> Tensor:
    """The paper's objective: UNCE + lambda sqrt(|C| / |N|) UNKD + gamma (spatial + channel PCD)."""
    with torch.no_grad():
        before = old(images, maps="before")
    after = model(images, maps="before")
    known, classes = len(old.names), len(model.names)
    weight = LAMBDA * (classes / (classes - known)) ** 0.5
    learned = unbiased_cross_entropy(after.logits, labels, known)
    kept = weight * unbiased_distillation(after.logits, before.logits)
    shaped = pcd_paper([*after.stages, after.decoder], [*before.stages, before.decoder], GAMMA)
    total: Tensor = learned + kept + shaped
    return total


@torch.no_grad()
def predict(model: Segmenter, image: Image) -> Image:
    """Class ids [H, W] of one scene."""
    return np.asarray(model(normalise(image)[None]).argmax(1)[0].byte())


def evaluate(model: Segmenter, *, scenes: int = 40, first_seed: int = 900_000) -> dict[str, float]:
    """IoU of each class that the model knows, on scenes of their own; unknown classes count as background."""
    count = len(model.names)
    confusion = Confusion(count)
    for seed in range(first_seed, first_seed + scenes):
        image, truth = make_scene(seed)
        confusion.update(np.where(truth < count, truth, 0).astype(np.uint8), predict(model, image))
    return {name: float(value) for name, value in zip(CLASSES, confusion.iou, strict=False)}
