"""A run folder belongs to one task, which it records."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml
from pydantic import BaseModel

from rcil.documents import parse_yaml
from rcil.errors import ConfigError, TrainingError
from rcil.files import replacing

RECORD = "task.yaml"


def claim(output: Path, task: BaseModel, *, resume: bool) -> None:
    """Take the folder, or make sure that it holds this very task.

    Args:
        output: The folder; need not exist.
        task: What is about to run, of any kind.
        resume: Whether a run that was begun there may go on.
    """
    record = output / RECORD
    if not record.exists():
        with replacing(record) as part:
            part.write_text(yaml.safe_dump(task.model_dump(mode="json"), sort_keys=False), encoding="utf-8")
        return
    if not resume:
        raise ConfigError(f"{output} holds a run already", "Continue it with --resume, or choose another folder.")
    recorded = _recorded(record, type(task))
    if recorded is None or _what(recorded) != _what(task):
        raise TrainingError(
            f"{output} was started with another task", "Use the same file and overrides, or choose another folder."
        )


def _what(task: BaseModel) -> dict[str, Any]:
    """What is done, without where: a run that began on a GPU may go on elsewhere."""
    document = task.model_dump()
    document["training"].pop("device", None)
    return document


def _recorded(record: Path, kind: type[BaseModel]) -> BaseModel | None:
    """The task that a folder was claimed for; keys that a later version added have their defaults."""
    try:
        return kind.model_validate(parse_yaml(record.read_text(encoding="utf-8")))
    except (OSError, ValueError):
        return None
