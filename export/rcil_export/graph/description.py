"""What an exported model says about itself, as texts inside an ONNX file or an engine's sidecar. No torch here."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple, TypeVar

from pydantic import BaseModel, ValidationError

from rcil.core.errors import CheckpointError
from rcil.model.header import METADATA_KEY
from rcil.model.metadata import ClassifierMetadata, Metadata
from rcil_export.graph.interface import INTERFACE_KEY, ClassifierInterface, GraphInterface, Interface

M = TypeVar("M", bound=BaseModel)


class Description(NamedTuple):
    """What a segmenter's graph says about itself."""

    metadata: Metadata
    """What the network is: classes, colours, mean and std, lineage."""
    interface: Interface
    """What the graph takes and gives."""


class AnyDescription(NamedTuple):
    """What the graph of any network says about itself; see `Description`."""

    metadata: Metadata
    interface: GraphInterface


def parse_description(texts: Mapping[str, str], source: Path | str) -> Description:
    """Read the texts of `source`; all that does not describe what gives masks is a `CheckpointError` that names it."""
    return Description(_parsed(texts, METADATA_KEY, Metadata, source), _parsed(texts, INTERFACE_KEY, Interface, source))


def parse_any_description(texts: Mapping[str, str], source: Path | str) -> AnyDescription:
    """As `parse_description`, and for classifiers of whole images too."""
    if _kind_of(texts.get(METADATA_KEY, "")) != "classifier":
        return AnyDescription(*parse_description(texts, source))
    return AnyDescription(
        _parsed(texts, METADATA_KEY, ClassifierMetadata, source),
        _parsed(texts, INTERFACE_KEY, ClassifierInterface, source),
    )


def _kind_of(text: str) -> object:
    """What a description says it describes, whatever else is wrong with it."""
    try:
        document = json.loads(text)
    except (ValueError, RecursionError):
        return None
    return document.get("kind") if isinstance(document, dict) else None


def _parsed(texts: Mapping[str, str], key: str, kind: type[M], source: Path | str) -> M:
    if key not in texts:
        raise CheckpointError(
            f"{source} has no description of RCIL's, so its classes are unknown",
            "Export it from a checkpoint with rcil-export.",
        )
    try:
        return kind.model_validate_json(texts[key])
    except CheckpointError as error:  # it describes something else
        raise CheckpointError(f"{source}: {error.message}", error.hint) from error
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
