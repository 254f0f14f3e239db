"""Optimiser, parameter groups and learning rate schedule of a step."""

from __future__ import annotations

from typing import Any

import torch

from rcil.nn import Network
from rcil.tasks.task import TrainingSection

WARMUP_START = 0.01
"""Share of the learning rate that a warm-up starts with."""


def make_schedule(
    optimiser: torch.optim.Optimizer, settings: TrainingSection, total: int, warmup: int
) -> torch.optim.lr_scheduler.LRScheduler:
    """Polynomial decay over `total` iterations, the first `warmup` of which rise linearly instead."""
    warmup = min(warmup, total - 1)
    decay = torch.optim.lr_scheduler.PolynomialLR(optimiser, total - warmup, power=settings.power)
    if warmup < 1:
        return decay
    rise = torch.optim.lr_scheduler.LinearLR(optimiser, WARMUP_START, 1.0, warmup)
    return torch.optim.lr_scheduler.SequentialLR(optimiser, [rise, decay], [warmup])


def parameter_groups(model: Network, settings: TrainingSection, later: int) -> list[dict[str, Any]]:
    """Parameter groups of the body and of the classifier, and of the backbone if its learning rate differs."""
    lr = settings.lr[later]
    parts: dict[str, list[torch.nn.Parameter]] = {"backbone": [], "head": [], "classifier": []}
    for name, parameter in model.named_parameters():
        if parameter.requires_grad:
            parts[model.part_of(name)].append(parameter)
    if settings.backbone_lr == 1:
        parts = {"body": parts["backbone"] + parts["head"], "classifier": parts["classifier"]}
    factors = {"backbone": settings.backbone_lr, "classifier": settings.classifier_lr}
    return [{"params": found, "lr": lr * factors.get(part, 1.0)} for part, found in parts.items() if found]


def make_optimiser(groups: list[dict[str, Any]], settings: TrainingSection) -> torch.optim.Optimizer:
    """SGD with Nesterov momentum, or AdamW."""
    if settings.optimiser == "adamw":
        return torch.optim.AdamW(groups, weight_decay=settings.weight_decay)
    nesterov = settings.momentum > 0
    return torch.optim.SGD(groups, momentum=settings.momentum, nesterov=nesterov, weight_decay=settings.weight_decay)
