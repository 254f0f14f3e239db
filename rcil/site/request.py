"""The request of `rcil add-class`, which is recorded next to the result."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import yaml
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from rcil.core.documents import parse_yaml
from rcil.core.errors import ConfigError, TrainingError, did_you_mean
from rcil.core.files import is_free, replacing, sha256_of
from rcil.train.task import MethodSection, Scale, TrainingSection, apply_override, explained

RECORD = "add_class.yaml"
SECTIONS = ("training", "method")
"""Sections that overrides may change; everything else has its own option."""


class Request(BaseModel):
    """The classes to add, the images, the method and the allowed forgetting."""

    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)

    model: Path
    """The checkpoint to start from."""
    data: Path
    """The site folder."""
    classes: tuple[str, ...]
    method: MethodSection = MethodSection()
    training: TrainingSection = TrainingSection()
    """Both numbers of a pair are equal, because there is only one step."""
    scale: Scale = 1.0
    """Factor by which images are resized for the network."""
    max_drop: Annotated[float, Field(ge=0)] = 5.0
    """Maximum drop in IoU points of an old class."""
    seed: Annotated[int, Field(ge=0)] = 0


def make_request(fields: dict[str, Any], overrides: Sequence[str] = ()) -> Request:
    """Validate the fields of a request.

    Args:
        fields: Fields of `Request`, with `training` and `method` as dictionaries.
        overrides: Dotted keys with YAML values, for example `training.momentum=0.8`.
    """
    document = {**fields, "training": dict(fields.get("training", {})), "method": dict(fields.get("method", {}))}
    for override in overrides:
        section = override.partition("=")[0].strip().partition(".")[0]
        if section not in SECTIONS:
            raise ConfigError(f"'{override}' changes neither training nor method", did_you_mean(section, SECTIONS))
        apply_override(document, override)
    try:
        return Request.model_validate(document)
    except ValidationError as error:
        raise explained(error, Path("add-class")) from error


def check_claim(output: Path, request: Request, *, resume: bool) -> None:
    """Refuse a folder that is in use, or that was started with another request."""
    record = output / RECORD
    if not record.exists():
        if not is_free(output):
            raise ConfigError(f"{output} is in use", "Name a folder that does not exist yet, or an empty one.")
        return
    if not resume:
        raise ConfigError(f"{output} holds a run already", "Continue it with --resume, or choose another folder.")
    try:
        stored = parse_yaml(record.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise TrainingError(f"cannot read {record}", "Choose another folder.") from error
    if _without_device(stored) != _without_device(_document(request)):
        raise TrainingError(f"{output} was started with another request", "Resume with the same options.")


def _without_device(document: Any) -> Any:
    """What is done, without where: a run that began on a GPU may go on elsewhere."""
    match document:
        case {"training": {"device": _, **training}, **rest}:
            return {**rest, "training": training}
    return document


def claim(output: Path, request: Request) -> None:
    """Take the folder."""
    with replacing(output / RECORD) as part:
        part.write_text(yaml.safe_dump(_document(request), sort_keys=False), encoding="utf-8")


def _document(request: Request) -> dict[str, Any]:
    """The request and the very model it starts from, as YAML gives it back."""
    fields = request.model_dump(mode="json")
    document: dict[str, Any] = json.loads(json.dumps({**fields, "model_sha256": sha256_of(request.model)}))
    return document
