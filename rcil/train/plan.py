"""From a task and its data to what each step trains, validates and tests on."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass

from rcil.data.datasets import open_dataset
from rcil.data.protocol import BACKGROUND, ClassStep, class_steps, load_order, parse_split, select, split_order
from rcil.data.scan import present_classes
from rcil.data.site import read_site
from rcil.data.types import Sample, SegmentationData
from rcil.errors import ConfigError, did_you_mean
from rcil.train.task import ProtocolSection, Task


@dataclass(frozen=True)
class StepPlan:
    """One step."""

    step: ClassStep
    names: tuple[str, ...]
    """What it teaches; step 0 includes background."""
    train: tuple[Sample, ...]
    validation: tuple[Sample, ...]
    """Held out of the training images: chooses the best epoch."""


@dataclass(frozen=True)
class Plan:
    """The whole run."""

    data: SegmentationData
    steps: tuple[StepPlan, ...]
    test: tuple[Sample, ...]


def make_plan(task: Task, *, joint: bool = False) -> Plan:
    """Resolve a task; raises before any training if a step would have nothing to learn from.

    Args:
        task: What the user wants.
        joint: Teach all classes in one step, for the upper bound.
    """
    section = task.data
    data = (
        read_site(section.root, seed=task.seed) if section.kind == "site" else open_dataset(section.kind, section.root)
    )
    for split in (section.train, section.test):
        if split not in data.splits:
            raise ConfigError(f"{section.root} has no split '{split}'", did_you_mean(split, data.splits))
    groups = resolve_groups(task.protocol, data.names)
    if joint:
        groups = [[c for group in groups for c in group]]
    present = present_classes(data, section.train)
    samples = {sample.name: sample for sample in data.splits[section.train]}
    plans = []
    for step in class_steps(groups):
        chosen = select(step, present, task.protocol.setting)
        names = tuple(data.names[c] for c in step.classes)
        held = {name for name in chosen if _held_out(name, task.seed, task.training.held_out)}
        train = tuple(samples[name] for name in chosen if name not in held)
        validation = tuple(samples[name] for name in chosen if name in held)
        if not train or not validation:
            raise ConfigError(
                f"step {step.index} ({', '.join(names)}) has {len(chosen)} images: too few to train and hold some out",
                f"Check the class names and the setting '{task.protocol.setting}', or add images.",
            )
        plans.append(StepPlan(step, names, train, validation))
    return Plan(data, tuple(plans), data.splits[section.test])


def resolve_groups(protocol: ProtocolSection, names: tuple[str, ...]) -> list[list[int]]:
    """Class ids of each step, background first in step 0."""
    if protocol.split is not None:
        order = load_order(protocol.order) if protocol.order else list(range(len(names)))
        if len(order) != len(names):
            raise ConfigError(
                f"the order '{protocol.order}' has {len(order)} classes, the data {len(names)}",
                "Use it with its dataset.",
            )
        return split_order(order, *parse_split(protocol.split))
    assert protocol.steps is not None
    ids = {name: index for index, name in enumerate(names)}
    for name in (name for group in protocol.steps for name in group):
        if name not in ids:
            raise ConfigError(f"the data has no class '{name}'", did_you_mean(name, ids))
    groups = [[ids[name] for name in group if ids[name] != BACKGROUND] for group in protocol.steps]
    return [[BACKGROUND, *groups[0]], *groups[1:]]


def _held_out(name: str, seed: int, share: float) -> bool:
    """Depends on name and seed alone, so that a run and its resumption agree and new images move nothing."""
    digest = hashlib.sha256(f"held out/{seed}/{name}".encode()).digest()
    return int.from_bytes(digest[:8], "big") < share * 2**64
