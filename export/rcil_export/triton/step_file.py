"""`step.json`, which explains one version. No torch here: clients read it."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from rcil.checkpoint.metadata import ClassInfo
from rcil.errors import CheckpointError
from rcil_export.triton.signature import Signature

FILE_NAME = "step.json"
Backend = Literal["onnxruntime", "tensorrt"]
"""Triton's backends that run our models."""


class StepFile(BaseModel):
    """What a client needs to read the masks of one version, and the exporter to add another."""

    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True, protected_namespaces=())

    step: Annotated[int, Field(ge=0)]
    classes: tuple[ClassInfo, ...]
    """Mask value i is the class in place i."""
    colour_order: Literal["RGB", "BGR"]
    backend: Backend
    signature: Signature
    model_sha256: str


def read_step_file(version: Path) -> StepFile:
    """What the folder of a version says about itself."""
    path = version / FILE_NAME
    try:
        return StepFile.model_validate_json(path.read_bytes())
    except OSError as error:
        raise CheckpointError(
            f"cannot read {path}: {error.strerror}",
            "The folder was not written by rcil-export: publish under another name.",
        ) from error
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(map(str, first["loc"]))
        raise CheckpointError(
            f"{path} does not describe a step: {f'{where}: ' if where else ''}{first['msg']}",
            "It was damaged, or written by another version of rcil-export: publish under another name.",
        ) from error
