"""Tiny networks to export and serve."""

from __future__ import annotations

from pathlib import Path

import torch

from rcil.checkpoint.file import save
from rcil.model.architecture import RC, Architecture
from rcil.model.metadata import IMAGENET_MEAN, IMAGENET_STD, Metadata, class_table
from rcil.nn import build

NAMES = ["background", "building", "road"]


def write_checkpoint(path: Path, seed: int) -> Path:
    """Write an untrained network that does not predict background everywhere."""
    torch.manual_seed(seed)
    arch = Architecture(backbone="resnet18", blocks=(1, 1, 1, 1), width=4, head_width=8, rc=RC())
    model = build(arch, [NAMES]).eval()
    metadata = Metadata(architecture=model.arch, classes=class_table([NAMES]), mean=IMAGENET_MEAN, std=IMAGENET_STD)
    save(path, model, metadata)
    return path
