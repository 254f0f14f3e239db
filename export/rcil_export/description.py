"""What an exported model says about itself, as texts inside an ONNX file or an engine's sidecar. No torch here."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple, TypeVar

from pydantic import BaseModel, ValidationError

from rcil.checkpoint.header import METADATA_KEY
from rcil.checkpoint.metadata import Metadata
from rcil.errors import CheckpointError
from rcil_export.interface import INTERFACE_KEY, Interface

M = TypeVar("M", bound=BaseModel)


class Description(NamedTuple):
    """Both halves."""

    metadata: Metadata
    """What the network is: classes, colours, mean and std, lineage."""
    interface: Interface
    """What the graph takes and gives."""


def parse_description(texts: Mapping[str, str], source: Path | str) -> Description:
    """Read the texts of `source`; every way they can be wrong gives a `CheckpointError` that names it."""
    if METADATA_KEY not in texts or INTERFACE_KEY not in texts:
        raise CheckpointError(
            f"{source} has no description of RCIL's, so its classes are unknown",
            "Export it from a checkpoint with rcil-export.",
        )
    try:
        return Description(
            Metadata.model_validate_json(texts[METADATA_KEY]), Interface.model_validate_json(texts[INTERFACE_KEY])
        )
    except ValidationError as error:
        raise CheckpointError(
            f"{source}: its description is damaged: {first_problem(error)}", "Export it again with rcil-export."
        ) from error


def read_described(path: Path, kind: type[M], what: str, missing: str, wrong: str) -> M:
    """A JSON file that describes something.

    Args:
        path: The file.
        kind: What it must hold.
        what: What it describes, for the message.
        missing: What to do if there is no file.
        wrong: What to do if it holds something else.
    """
    try:
        return kind.model_validate_json(path.read_bytes())
    except OSError as error:
        raise CheckpointError(f"cannot read {path}: {error.strerror}", missing) from error
    except ValidationError as error:
        raise CheckpointError(f"{path} does not describe {what}: {first_problem(error)}", wrong) from error


def first_problem(error: ValidationError) -> str:
    """Where and what the first mistake is."""
    first = error.errors()[0]
    where = ".".join(map(str, first["loc"]))
    return f"{f'{where}: ' if where else ''}{first['msg']}"
