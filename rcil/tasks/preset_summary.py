"""A summary of the presets, which does not need their data."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from rcil.data.class_names import CITYSCAPES, VOC
from rcil.data.datasets.ade import CLASSES as ADE_CLASSES
from rcil.data.datasets.cityscapes import CITIES, TRAINING_CITIES
from rcil.presets import preset_names
from rcil.tasks.load import load_task
from rcil.tasks.plan import resolve_domains, resolve_groups
from rcil.tasks.task import Task

_NAMES = {
    "voc": tuple(VOC),
    "ade": tuple(f"class_{index}" for index in range(ADE_CLASSES + 1)),
    "cityscapes": tuple(CITYSCAPES),
}


@dataclass(frozen=True)
class PresetSummary:
    """A row of `rcil presets`."""

    name: str
    dataset: str
    protocol: str
    """X-Y, the setting, and the class order or the cut of the cities unless it is the paper's."""
    steps: int
    classes: int
    """Number of classes after the last step, including background."""


def summaries() -> list[PresetSummary]:
    """All presets, sorted by name."""
    return [_summary(name, load_task(Path(name))) for name in preset_names()]


def _summary(name: str, task: Task) -> PresetSummary:
    protocol, classes = task.protocol, _NAMES[task.data.kind]
    if protocol.by_domain:
        clean = task.data.variant == "clean"
        cities = CITIES[:TRAINING_CITIES] if clean else CITIES
        text, steps = f"{protocol.domains} domains", len(resolve_domains(protocol, list(cities)))
        text += ", clean" if clean else ""
    else:
        text, steps = f"{protocol.split} {protocol.setting}", len(resolve_groups(protocol, classes))
    if protocol.order:
        text += f", {protocol.order}"
    return PresetSummary(name, task.data.kind, text, steps, len(classes))
