"""What a table is: rows (methods, options) times replicas (seeds, class orders), each cell a task of its own."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from rcil.methods import make_method
from rcil.training.task import Task

Changes = Mapping[str, Any]
"""Dotted keys of a task and their values."""
Look = Literal["methods", "ablation", "grid"]


@dataclass(frozen=True)
class Table:
    """One page of docs/results."""

    name: str
    title: str
    about: str
    """What is compared, in a sentence or two, for the page."""
    data: str
    """Folder below that of the data, see `data.py`."""
    base: Mapping[str, Any]
    """The task that all cells share."""
    rows: Mapping[str, Changes]
    replicas: Mapping[str, Changes]
    look: Look = "methods"
    held_out: bool = False
    """Also measure on the held-out images, on which options are chosen."""
    pictures: tuple[str, ...] = ()
    """Rows that are shown on images."""


@dataclass(frozen=True)
class Cell:
    """A run."""

    table: str
    row: str
    replica: str
    task: Task = field(repr=False)
    held_out: bool
    first_classes: frozenset[str] = frozenset()
    """Of step 0, background included; empty where steps bring domains."""

    @property
    def id(self) -> str:
        """The method and a digest of the task: cells of different tables that do the same are one.

        Defaults do not count, so that a key which a task learns later changes nothing.
        """
        document = self.task.model_dump(mode="json", exclude={"name": True, "data": {"root"}}, exclude_defaults=True)
        return f"{self.task.method.name}-{_digest([self.task.data.root.name, document])}"

    @property
    def first_step(self) -> str:
        """A digest of all that decides step 0: cells with the same one share it."""
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
    """All cells, replica by replica, so that an interrupted table has whole replicas.

    Args:
        table: What to fill.
        data: The folder that holds the data of all tables.
    """
    for replica, first in table.replicas.items():
        for row, second in table.rows.items():
            document = {"recipe": "paper", **json.loads(json.dumps(table.base))}
            for key, value in {"name": table.title, "data.root": str(data / table.data), **first, **second}.items():
                _set(document, key.split("."), value)
            task = Task.model_validate(document)
            yield Cell(table.name, row, replica, _all_at_once(task), table.held_out, _first_classes(task))


def _all_at_once(task: Task) -> Task:
    """Joint training knows no steps: it is the same run whatever they are."""
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
    """What the protocol says about step 0; in the disjoint setting later classes decide which images it leaves out."""
    protocol = task.protocol
    if protocol.domain_steps is not None:
        return ["domains", sorted(protocol.domain_steps[0])]
    assert protocol.steps is not None
    first, *later = protocol.steps
    return [protocol.setting, first, sorted(c for step in later for c in step)]


def _digest(document: Any) -> str:
    return hashlib.sha256(json.dumps(document, sort_keys=True).encode()).hexdigest()[:10]
