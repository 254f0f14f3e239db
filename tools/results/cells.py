"""Tables: rows (methods and options) times replicas (seeds and class orders); every cell is a task."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from rcil.methods import make_method
from rcil.tasks.task import Task

Changes = Mapping[str, Any]
"""Dotted keys of a task and their values."""
Look = Literal["methods", "ablation", "grid"]


@dataclass(frozen=True)
class Table:
    """One page of docs/results or of a folder in it."""

    name: str
    title: str
    about: str
    """One or two sentences for the page about what is compared."""
    data: str
    """Folder name of the data; see `data.py`."""
    base: Mapping[str, Any]
    """The task that all cells share."""
    rows: Mapping[str, Changes]
    replicas: Mapping[str, Changes]
    look: Look = "methods"
    held_out: bool = False
    """Whether to measure also on the held-out images, on which options are chosen."""
    pictures: tuple[str, ...] = ()
    """Rows whose masks are shown as images."""
    folder: str = "small"
    """Folder of the page in docs/results; empty for docs/results itself."""
    repeated: tuple[str, ...] | None = None
    """Rows that run with all replicas, while the others run with the first one only; None: all rows."""
    detailed: bool = False
    """Whether the page also shows the IoU of every class."""

    def has(self, row: str, replica: str) -> bool:
        """Whether the row runs with the replica."""
        return self.repeated is None or row in self.repeated or replica == next(iter(self.replicas))


@dataclass(frozen=True)
class Cell:
    """One run of a table."""

    table: str
    row: str
    replica: str
    task: Task = field(repr=False)
    held_out: bool
    first_classes: frozenset[str] = frozenset()
    """Classes of step 0 with the background; empty if the steps add domains."""

    @property
    def id(self) -> str:
        """The method and a digest of the task, so that equal cells of different tables are the same run.

        Defaults are left out, so that a new key of the task format does not change it.
        """
        document = self.task.model_dump(mode="json", exclude={"name": True, "data": {"root"}}, exclude_defaults=True)
        return f"{self.task.method.name}-{_digest([self.task.data.root.name, document])}"

    @property
    def first_step(self) -> str:
        """A digest of everything that determines step 0; cells with the same digest share their step 0."""
        task = self.task
        method = make_method(task.method.name, **task.method.options)
        document = task.model_dump(mode="json", include={"seed", "network", "training"}, exclude_defaults=True)
        document["training"] |= {"epochs": task.training.epochs[0], "lr": task.training.lr[0]}
        for later in ("memory", "memory_share"):
            document["training"].pop(later, None)
        document["data"] = task.data.root.name, task.data.scale
        document["start"] = method.first_step, method.rc.model_dump() if method.rc else None
        document["protocol"] = None if method.sees_all_data else _first_of(task)
        return _digest(document)


def cells_of(table: Table, data: Path) -> Iterator[Cell]:
    """Yield all cells, replica by replica, so that an interrupted table has complete replicas.

    Args:
        table: The table.
        data: The folder that holds the data of all tables.
    """
    for replica, first in table.replicas.items():
        for row, second in table.rows.items():
            if not table.has(row, replica):
                continue
            document = {"recipe": "paper", **json.loads(json.dumps(table.base))}
            for key, value in {"name": table.title, "data.root": str(data / table.data), **first, **second}.items():
                _set(document, key.split("."), value)
            task = Task.model_validate(document)
            yield Cell(table.name, row, replica, _all_at_once(task), table.held_out, _first_classes(task))


def _all_at_once(task: Task) -> Task:
    """Remove the steps from a joint training, which does not depend on them."""
    if task.protocol.steps is None or not make_method(task.method.name, **task.method.options).sees_all_data:
        return task
    names = tuple(sorted(name for step in task.protocol.steps for name in step))
    return task.model_copy(
        update={"protocol": task.protocol.model_copy(update={"steps": (names,), "setting": "overlapped"})}
    )


def _first_classes(task: Task) -> frozenset[str]:
    return frozenset({"background", *task.protocol.steps[0]} if task.protocol.steps else ())


def _set(document: dict[str, Any], path: list[str], value: Any) -> None:
    *sections, last = path
    for section in sections:
        document = document.setdefault(section, {})
    document[last] = value


def _first_of(task: Task) -> Any:
    """The part of the protocol that affects step 0. In the disjoint setting, later classes exclude images from it."""
    protocol = task.protocol
    if protocol.domain_steps is not None:
        return ["domains", sorted(protocol.domain_steps[0])]
    assert protocol.steps is not None
    first, *later = protocol.steps
    return [protocol.setting, first, sorted(c for step in later for c in step)]


def _digest(document: Any) -> str:
    return hashlib.sha256(json.dumps(document, sort_keys=True).encode()).hexdigest()[:10]
