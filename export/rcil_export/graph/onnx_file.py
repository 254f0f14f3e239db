"""Reading and writing ONNX files with their descriptions. No torch here: `rcil-export inspect` starts fast."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import onnx
from google.protobuf.message import DecodeError
from onnx import helper

from rcil.core.errors import CheckpointError
from rcil.core.files import write_file
from rcil.model.header import METADATA_KEY
from rcil.model.metadata import Metadata
from rcil_export.graph.description import Description, damaged, parse_description
from rcil_export.graph.interface import INTERFACE_KEY, GraphInterface, Interface


class OnnxFile(NamedTuple):
    """A graph and what it says about itself."""

    document: onnx.ModelProto
    metadata: Metadata
    interface: Interface


def read_onnx(path: Path) -> OnnxFile:
    """Read an exported file; a `CheckpointError` names the file and what is wrong with it."""
    document = load_document(path)
    return OnnxFile(document, *description_of(document, path))


def load_document(path: Path) -> onnx.ModelProto:
    """Load any ONNX file; a `CheckpointError` names a file that is not ONNX."""
    try:
        document = onnx.load(path, format="protobuf")  # whatever its name says: .json and .pbtxt are other formats
        if any(isinstance(text, bytes) for text in _texts(document)):
            raise ValueError("a text is not UTF-8")  # protobuf gives it as bytes
        return document
    except OSError as error:
        raise CheckpointError(f"cannot read {path}: {error.strerror}", "Check the path.") from error
    except (DecodeError, ValueError, onnx.checker.ValidationError) as error:
        raise damaged(path) from error


def _texts(document: onnx.ModelProto) -> Iterator[str | bytes]:
    """Everything in the file that is read as text."""
    for entry in document.metadata_props:
        yield from (entry.key, entry.value)
    for node in document.graph.node:
        yield node.op_type


def texts_of(document: onnx.ModelProto) -> dict[str, str]:
    """The texts in a file's metadata, in the order of their keys."""
    return {entry.key: entry.value for entry in sorted(document.metadata_props, key=lambda entry: entry.key)}


def description_of(document: onnx.ModelProto, source: Path | str = "the graph") -> Description:
    """What a graph that rcil-export wrote says about itself."""
    return parse_description(texts_of(document), source)


def describe(document: onnx.ModelProto, metadata: Metadata, interface: GraphInterface) -> None:
    """Replace the descriptions in the file's metadata by these."""
    helper.set_model_props(
        document, {METADATA_KEY: metadata.model_dump_json(), INTERFACE_KEY: interface.model_dump_json()}
    )


def write_onnx(path: Path, document: onnx.ModelProto) -> None:
    """Write a graph atomically; the same graph gives the same bytes."""
    write_file(path, document.SerializeToString(deterministic=True))
