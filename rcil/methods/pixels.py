"""A sample of the pixels of whole images: classifier inputs and class probabilities."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional as F

from rcil.core.log import stage
from rcil.data.protocol import BACKGROUND
from rcil.data.types import IGNORE
from rcil.nn import Network

PER_IMAGE = 300
"""Evenly spread pixels per image. Ignored pixels are left out, so that classes of a memory do not seem frequent."""
MIN_COLUMNS = 10
"""The pixels lie in at least this many columns, also if stride and image width have common factors."""
CHANNELS = 16
"""Channels that are interpolated at a time."""


@dataclass(frozen=True)
class Pixels:
    """Sampled pixels."""

    features: Tensor
    """Inputs of the classifier [P, D]."""
    targets: Tensor
    """Target probability of each class [P, C]."""


def pick_pixels(features: Tensor, labels: Tensor, old_logits: Tensor | None, classes: int) -> Pixels:
    """Evenly spread pixels of a batch.

    Features are interpolated before they are classified. The network does it in reverse order; both are linear.

    Args:
        features: Inputs of the classifier [N, D, h, w].
        labels: Class ids [N, H, W]; 255 is ignored. Preferably on the CPU, because the host needs the number of
            remaining pixels.
        old_logits: The old model's logits [N, O, H, W], used for background; None if background is labelled.
        classes: Number of classes.
    """
    indices = torch.arange(0, labels.numel(), _stride(labels), device=labels.device)
    chosen = indices[labels.flatten()[indices] != IGNORE]
    named = labels.flatten()[chosen].to(features.device)
    chosen = chosen.to(features.device)
    targets = F.one_hot(named, classes).to(features)
    if old_logits is not None:
        predicted = F.pad(_at(old_logits, chosen).softmax(dim=1), (0, classes - old_logits.shape[1]))
        targets = torch.where((named == BACKGROUND)[:, None], predicted.to(targets), targets)
    size = labels.shape[1:]  # a few channels at a time, because all of them may take gigabytes
    parts = (
        F.interpolate(part, size, mode="bilinear", align_corners=False) for part in torch.split(features, CHANNELS, 1)
    )
    return Pixels(torch.cat([_at(part, chosen) for part in parts], dim=1), targets)


def _stride(labels: Tensor) -> int:
    """Distance of two sampled pixels in the flattened [N H W]."""
    width = labels.shape[-1]
    stride = max(1, labels.numel() // (PER_IMAGE * len(labels)))
    while width // math.gcd(stride, width) < min(MIN_COLUMNS, width):
        stride -= 1
    return stride


def _at(maps: Tensor, indices: Tensor) -> Tensor:
    """Values [P, C] of maps [N, C, H, W] at P indices of the flattened [N H W]."""
    return torch.stack([channel.flatten()[indices] for channel in maps.unbind(dim=1)], dim=1)


@torch.no_grad()
def sample_pixels(student: Network, teacher: Network | None, images: Iterable[tuple[Tensor, Tensor]]) -> Pixels:
    """Pixels of all images, with the student's features in evaluation mode.

    Args:
        student: The network whose classifier will be changed.
        teacher: Predicts background pixels; None if background is labelled. It is moved to the student's device.
        images: At least one batch of normalised images [N, 3, H, W] and labels [N, H, W].
    """
    device = next(student.parameters()).device
    student.eval()
    if teacher is not None:
        teacher.to(device).eval()
    parts = []
    with stage("sampling of pixels"):
        for pictures, labels in images:
            there = pictures.to(device)
            features = student.rows.features(student(there, maps="after").inputs)
            old_logits = None if teacher is None else teacher(there)
            parts.append(pick_pixels(features, labels, old_logits, len(student.names)))
    return Pixels(torch.cat([part.features for part in parts]), torch.cat([part.targets for part in parts]))
