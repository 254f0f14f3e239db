"""A sample of the pixels of whole images: classifier inputs and class probabilities."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, replace

import torch
from torch import Tensor
from torch.nn import functional as F

from rcil.core.log import stage
from rcil.data.protocol import BACKGROUND
from rcil.data.types import IGNORE
from rcil.nn import Network

MAX_PER_IMAGE = 5000
"""Evenly spread pixels per image, so that a small class in a dozen images still has some hundreds. Ignored pixels are
left out, so that classes of a memory do not seem frequent."""
MIN_COLUMNS = 100
"""The pixels lie in at least this many columns, also if stride and image width have common factors."""
MAX_PIXELS = 150_000
"""With many images there are fewer pixels of each, in every image at the same density: a row of the classifier is then
fitted in seconds."""
DENSE_IMAGES = MAX_PIXELS // MAX_PER_IMAGE
"""More images than this do not have more pixels."""


@dataclass(frozen=True)
class Pixels:
    """Sampled pixels."""

    features: Tensor
    """Inputs of the classifier [P, D]."""
    targets: Tensor
    """Target probability of each class [P, C]."""
    old_features: Tensor | None = None
    """What the classifier of the network before the step reads there [P, D]; None if nobody asked for it."""


def pick_pixels(
    features: Tensor, labels: Tensor, old_logits: Tensor | None, classes: int, *, per_image: int | None = None
) -> Pixels:
    """Evenly spread pixels of a batch.

    Features are interpolated before they are classified. The network does it in reverse order; both are linear.

    Args:
        features: Inputs of the classifier [N, D, h, w].
        labels: Class ids [N, H, W]; 255 is ignored. Preferably on the CPU, because the host needs the number of
            remaining pixels.
        old_logits: The old model's logits [N, O, H, W], used for background; None if background is labelled.
        classes: Number of classes.
        per_image: Approximate number of pixels per image, before ignored ones are left out (`MAX_PER_IMAGE`).
    """
    indices = torch.arange(0, labels.numel(), _stride(labels, per_image or MAX_PER_IMAGE), device=labels.device)
    chosen = indices[labels.flatten()[indices] != IGNORE]
    named = labels.flatten()[chosen].to(features.device)
    chosen = chosen.to(features.device)
    targets = F.one_hot(named, classes).to(features)
    if old_logits is not None:
        predicted = F.pad(_at(old_logits, chosen).softmax(dim=1), (0, classes - old_logits.shape[1]))
        targets = torch.where((named == BACKGROUND)[:, None], predicted.to(targets), targets)
    return Pixels(_interpolated(features, chosen, labels.shape[-2], labels.shape[-1]), targets)


def _interpolated(features: Tensor, indices: Tensor, height: int, width: int) -> Tensor:
    """Features [N, D, h, w] enlarged to [N, D, height, width], at P indices of the flattened [N height width]: [P, D].

    Only these pixels are computed: the enlarged features of an image may take gigabytes.
    """
    rows = features.movedim(1, -1)
    image = indices.div(height * width, rounding_mode="floor")
    above, below, down = _neighbours(indices.div(width, rounding_mode="floor") % height, height, rows.shape[1])
    left, right, across = _neighbours(indices % width, width, rows.shape[2])
    upper = rows[image, above, left].lerp(rows[image, above, right], across.to(rows))
    lower = rows[image, below, left].lerp(rows[image, below, right], across.to(rows))
    return upper.lerp(lower, down.to(rows))


def _neighbours(indices: Tensor, size: int, small: int) -> tuple[Tensor, Tensor, Tensor]:
    """Both neighbours in a row of `small` pixels of each pixel [P] of a row of `size`, and the weights [P, 1] of the
    second ones.
    """
    centre = ((indices + 0.5) * (small / size) - 0.5).clamp(min=0)
    first = centre.long()
    return first, (first + 1).clamp(max=small - 1), (centre - first)[:, None]


def _stride(labels: Tensor, per_image: int) -> int:
    """Distance of two sampled pixels in the flattened [N H W]."""
    width = labels.shape[-1]
    stride = max(1, labels.numel() // (per_image * len(labels)))
    while width // math.gcd(stride, width) < min(MIN_COLUMNS, width):
        stride -= 1
    return stride


def _at(maps: Tensor, indices: Tensor) -> Tensor:
    """Values [P, C] of maps [N, C, H, W] at P indices of the flattened [N H W]."""
    return torch.stack([channel.flatten()[indices] for channel in maps.unbind(dim=1)], dim=1)


@torch.no_grad()
def sample_pixels(
    student: Network,
    teacher: Network | None,
    images: Iterable[tuple[Tensor, Tensor]],
    *,
    with_old: bool = False,
    teaches: bool = True,
) -> Pixels:
    """Pixels of all images, with the student's features in evaluation mode.

    Args:
        student: The network whose classifier will be changed.
        teacher: Predicts background pixels; None if background is labelled. It is moved to the student's device.
        images: At least one batch of normalised images [N, 3, H, W] and labels [N, H, W].
        with_old: Also return the teacher's features.
        teaches: Whether the teacher predicts background; if not, it is asked for its features only.
    """
    device = next(student.parameters()).device
    student.eval()
    if teacher is not None:
        teacher.to(device).eval()
    parts: list[Pixels] = []
    every = 1
    with stage("sampling of pixels"):
        for pictures, labels in images:
            there = pictures.to(device)
            features = student.rows.features(student(there, maps="after").inputs)
            old = None if teacher is None else teacher(there, maps="after")
            predicted = old.logits if old is not None and teaches else None
            found = pick_pixels(features, labels, predicted, len(student.names))
            if with_old and teacher is not None and old is not None:
                known = pick_pixels(teacher.rows.features(old.inputs), labels, None, len(student.names))
                found = replace(found, old_features=known.features)
            parts.append(_thinned(found, every))
            if sum(len(part.features) for part in parts) > MAX_PIXELS:
                parts, every = [_thinned(part, 2) for part in parts], 2 * every
    before = [part.old_features for part in parts if part.old_features is not None]
    return Pixels(
        torch.cat([part.features for part in parts]),
        torch.cat([part.targets for part in parts]),
        torch.cat(before) if before else None,
    )


def _thinned(pixels: Pixels, every: int) -> Pixels:
    """Every second, third or so pixel; copies, so that the memory of the others is freed."""
    before = pixels.old_features
    return Pixels(
        pixels.features[::every].clone(),
        pixels.targets[::every].clone(),
        None if before is None else before[::every].clone(),
    )
