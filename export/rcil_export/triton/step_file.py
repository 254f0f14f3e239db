"""`step.json`, which explains one version. No torch here: clients read it."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field

from rcil.model.metadata import ClassInfo
from rcil_export.graph.description import read_described
from rcil_export.graph.shapes import Extent
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
    batch: Extent | None = None
    """Smallest, usual and largest batch; None in files of versions that did not write it."""
    model_sha256: str


def read_step_file(version: Path) -> StepFile:
    """What the folder of a version says about itself."""
    return read_described(
        version / FILE_NAME,
        StepFile,
        "a step",
        missing="The folder was not written by rcil-export: publish under another name.",
        wrong="It was damaged, or written by another version of rcil-export: publish under another name.",
    )
