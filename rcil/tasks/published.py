"""The paper's results for its presets, to print beside one's own."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from rcil.tasks.load import load_task
from rcil.tasks.task import Task

_VOC = {
    "fine-tuning": (12.9, 3.9, 3.9),
    "lwf": (55.0, 5.5, 4.8),
    "ilt": (61.3, 9.2, 5.5),
    "mib": (70.0, 32.2, 20.1),
    "sdr": (70.1, 39.5, 25.1),
    "plop": (70.1, 54.6, 30.5),
    "rcil": (72.4, 59.4, 34.3),
    "joint": (78.2, 78.2, 78.2),
}
_ADE = {
    "ilt": (17.0, 1.1, 9.7, 0.5),
    "mib": (32.8, 29.2, 29.3, 25.9),
    "plop": (32.9, 31.6, 30.4, 28.7),
    "rcil": (34.5, 32.1, 32.5, 29.6),
    "joint": (38.9, 38.9, 38.9, 38.9),
}
_CITYSCAPES = {
    "fine-tuning": (61.7, 60.4, 42.9),
    "lwf": (59.7, 57.3, 33.0),
    "lwf-mc": (58.7, 57.0, 31.4),
    "ilt": (59.1, 57.8, 30.1),
    "mib": (61.5, 60.0, 42.2),
    "plop": (63.5, 62.1, 45.2),
    "rcil": (64.3, 63.0, 48.9),
}
_TABLES: tuple[tuple[tuple[str, ...], Mapping[str, tuple[float, ...]]], ...] = (
    (("voc-15-5-overlapped", "voc-15-1-overlapped", "voc-10-1-overlapped"), _VOC),
    (("ade-100-50", "ade-100-10", "ade-50-50", "ade-100-5"), _ADE),
    (("cityscapes-11-5", "cityscapes-11-1", "cityscapes-1-1"), _CITYSCAPES),
)
PUBLISHED: Mapping[str, Mapping[str, float]] = {
    preset: {method: values[column] for method, values in table.items()}
    for presets, table in _TABLES
    for column, preset in enumerate(presets)
}
"""Mean IoU of all classes after the last step, in %, by preset and method."""


def published_miou(task: Task, method: str) -> float | None:
    """The paper's mean IoU of all classes after the last step, in %; None if it has none for this task.

    A task that was made from a preset counts as that preset while it has the same data and steps.
    """
    rows = PUBLISHED.get(task.name)
    if rows is None:
        return None
    preset = load_task(Path(task.name))
    same = preset.data.kind, preset.data.variant, preset.protocol
    if (task.data.kind, task.data.variant, task.protocol) != same:
        return None
    return rows.get(method.removesuffix("-official"))
