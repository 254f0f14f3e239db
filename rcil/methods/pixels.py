"""Pixels of a step's whole images, as the classifier sees them, and what is known of them."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional as F

from rcil.data.protocol import BACKGROUND
from rcil.data.types import IGNORE
from rcil.log import stage
from rcil.nn import Segmenter

PER_IMAGE = 300
"""Evenly spread; fewer where a part is ignored, as what a memory does not name: its classes must not seem frequent."""
COLUMNS = 10
"""In so many at least, even if their number and the image's width have much in common."""
CHANNELS = 16
"""Interpolated at a time."""


@dataclass(frozen=True)
class Pixels:
    """A sample of them."""

    features: Tensor
    """What the classifier reads [P, D]."""
    targets: Tensor
    """The probability of each class [P, C]."""


def pick_pixels(features: Tensor, labels: Tensor, old_logits: Tensor | None, classes: int) -> Pixels:
    """Some pixels of a batch, evenly spread.

    Interpolating features and then classifying them is what the network does the other way round: both are linear.

    Args:
        features: What the classifier reads [N, D, h, w].
        labels: Class ids [N, H, W]; 255 is ignored. Best on the CPU, even if the features are not: the host must know
            how many pixels are left.
        old_logits: What the old model says of background [N, O, H, W]; None where the labels mean what they say.
        classes: How many there are now.
    """
    places = torch.arange(0, labels.numel(), _stride(labels), device=labels.device)
    chosen = places[labels.flatten()[places] != IGNORE]
    named = labels.flatten()[chosen].to(features.device)
    chosen = chosen.to(features.device)
    targets = F.one_hot(named, classes).to(features)
    if old_logits is not None:
        said = F.pad(_at(old_logits, chosen).softmax(dim=1), (0, classes - old_logits.shape[1]))
        targets = torch.where((named == BACKGROUND)[:, None], said.to(targets), targets)
    size = labels.shape[1:]  # a few channels at a time: all of them at this size may be gigabytes
    parts = (
        F.interpolate(part, size, mode="bilinear", align_corners=False) for part in torch.split(features, CHANNELS, 1)
    )
    return Pixels(torch.cat([_at(part, chosen) for part in parts], dim=1), targets)


def _stride(labels: Tensor) -> int:
    """From one place of [N H W] to the next."""
    width = labels.shape[-1]
    stride = max(1, labels.numel() // (PER_IMAGE * len(labels)))
    while width // math.gcd(stride, width) < min(COLUMNS, width):
        stride -= 1
    return stride


def _at(maps: Tensor, places: Tensor) -> Tensor:
    """What maps [N, C, H, W] hold at P places of [N H W]: [P, C]."""
    return torch.stack([channel.flatten()[places] for channel in maps.unbind(dim=1)], dim=1)


@torch.no_grad()
def look_at(student: Segmenter, teacher: Segmenter | None, images: Iterable[tuple[Tensor, Tensor]]) -> Pixels:
    """Pixels of all images, with the student's features in evaluation mode.

    Args:
        student: Whose classifier is to be changed.
        teacher: Says what the labels call background; None where they mean it. It is moved to where the student is.
        images: At least one batch of normalised images [N, 3, H, W] and labels [N, H, W].
    """
    device = next(student.parameters()).device
    student.eval()
    if teacher is not None:
        teacher.to(device).eval()
    parts = []
    with stage("look at whole images"):
        for pictures, labels in images:
            there = pictures.to(device)
            features = student(there, maps="after").decoder
            said = None if teacher is None else teacher(there)
            parts.append(pick_pixels(features, labels, said, len(student.names)))
    return Pixels(torch.cat([part.features for part in parts]), torch.cat([part.targets for part in parts]))
