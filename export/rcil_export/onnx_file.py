"""Reading and writing ONNX files with their descriptions. No torch here: serving reads them."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import onnx
from google.protobuf.message import DecodeError
from pydantic import ValidationError

from rcil.checkpoint.header import METADATA_KEY
from rcil.checkpoint.metadata import Metadata
from rcil.errors import CheckpointError
from rcil.files import replacing
from rcil_export.interface import INTERFACE_KEY, Interface


@dataclass(frozen=True)
class OnnxFile:
    """A graph and what it says about itself."""

    document: onnx.ModelProto
    metadata: Metadata
    interface: Interface


def read_onnx(path: Path) -> OnnxFile:
    """Read an exported file; every way it can be wrong gives a `CheckpointError` that names it."""
    try:
        document = onnx.load(path)
    except OSError as error:
        raise CheckpointError(f"cannot read {path}: {error.strerror}", "Check the path.") from error
    except (DecodeError, ValueError) as error:
        raise CheckpointError(f"{path} is not an ONNX file, or damaged", "Export it again with rcil-export.") from error
    texts = {entry.key: entry.value for entry in document.metadata_props}
    if METADATA_KEY not in texts or INTERFACE_KEY not in texts:
        raise CheckpointError(
            f"{path} is an ONNX file without RCIL's description", "Export it from a checkpoint with rcil-export."
        )
    try:
        metadata = Metadata.model_validate_json(texts[METADATA_KEY])
        interface = Interface.model_validate_json(texts[INTERFACE_KEY])
    except ValidationError as error:
        raise CheckpointError(
            f"{path}: its description is damaged: {error.errors()[0]['msg']}", "Export it again with rcil-export."
        ) from error
    return OnnxFile(document, metadata, interface)


def write_onnx(path: Path, document: onnx.ModelProto) -> None:
    """Write a graph, whole or not at all; the same graph gives the same bytes."""
    with replacing(path) as part:
        part.write_bytes(document.SerializeToString(deterministic=True))
