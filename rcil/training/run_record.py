"""A run folder records the request that it was started with, and is resumed with the same request only."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml
from pydantic import BaseModel

from rcil.core.documents import parse_yaml
from rcil.core.errors import ConfigError, TrainingError
from rcil.core.files import write_file

TASK_RECORD = "task.yaml"
"""The record of a training run."""
Facts = Mapping[str, str]
"""What a request does not say itself, such as the digest of a file that it names."""


def record_task(output: Path, task: BaseModel, *, resume: bool) -> None:
    """Record the task of a new run folder, or check that a run of the same task may be resumed there.

    Args:
        output: The folder, which need not exist.
        task: A task with a section `training`.
        resume: Whether a run that was begun in the folder may be continued.
    """
    record = output / TASK_RECORD
    check_record(record, task, resume=resume)
    if not record.exists():
        write_record(record, task)


def check_record(record: Path, request: BaseModel, *, resume: bool, facts: Facts | None = None) -> None:
    """Raise if a folder has a record and `resume` is false, or if the record is that of another request."""
    if not record.exists():
        return
    folder = record.parent
    if not resume:
        raise ConfigError(f"{folder} holds a run already", "Continue it with --resume, or choose another folder.")
    try:
        document = parse_yaml(record.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise TrainingError(f"cannot read {record}", "Choose another folder.") from error
    if not _is_same(document, request, facts or {}):
        raise TrainingError(
            f"{folder} was started with another task or request",
            "Resume with the same task, options and files, or choose another folder.",
        )


def write_record(record: Path, request: BaseModel, *, facts: Facts | None = None) -> None:
    """Write a request and the facts about it."""
    document = {**request.model_dump(mode="json"), **(facts or {})}
    write_file(record, yaml.safe_dump(document, sort_keys=False))


def _is_same(document: Any, request: BaseModel, facts: Facts) -> bool:
    """Whether a record is of this request. Keys that a later version added have their defaults.

    Tasks that were recorded before there were recipes used the defaults that are the recipe `paper` now.
    """
    if not isinstance(document, dict) or any(document.pop(key, None) != value for key, value in facts.items()):
        return False
    if "recipe" in type(request).model_fields:
        document.setdefault("recipe", "paper")
    try:
        return _without_device(type(request).model_validate(document)) == _without_device(request)
    except ValueError:
        return False


def _without_device(request: BaseModel) -> dict[str, Any]:
    """The request without its device: a run that began on a GPU may continue elsewhere."""
    document = request.model_dump()
    document["training"].pop("device", None)
    return document
