"""The texts in which an exported model describes itself, inside an ONNX file or an engine's sidecar.

Serving must know what a graph is written for before ONNX Runtime loads it, and has neither torch nor the package onnx.
So `read_texts` reads the bytes of the file: an ONNX file is one protobuf message; its texts are the repeated field 14,
each a message of key (1) and value (2), and everything else is skipped by its length.
https://protobuf.dev/programming-guides/encoding/ describes the bytes.
"""

from __future__ import annotations

import io
import json
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import BinaryIO, NamedTuple, TypeVar

from pydantic import BaseModel, ValidationError

from rcil.core.errors import CheckpointError
from rcil.model.header import METADATA_KEY
from rcil.model.metadata import ClassifierMetadata, Metadata
from rcil_export.graph.interface import INTERFACE_KEY, ClassifierInterface, GraphInterface, Interface

M = TypeVar("M", bound=BaseModel)
TEXTS_FIELD = 14
VARINT, EIGHT_BYTES, LENGTH_PREFIXED, FOUR_BYTES = 0, 1, 2, 5
MAX_VARINT_BYTES = 10


class Description(NamedTuple):
    """What the graph of a segmenter says about itself."""

    metadata: Metadata
    """What the network is: classes, colours, mean and std, lineage."""
    interface: Interface
    """What the graph takes and gives."""


class AnyDescription(NamedTuple):
    """What the graph of any network says about itself; see `Description`."""

    metadata: Metadata
    interface: GraphInterface


def parse_description(texts: Mapping[str, str], source: Path | str) -> Description:
    """Parse the texts of `source`; a `CheckpointError` names a file that does not describe a segmenter."""
    return Description(_parsed(texts, METADATA_KEY, Metadata, source), _parsed(texts, INTERFACE_KEY, Interface, source))


def parse_any_description(texts: Mapping[str, str], source: Path | str) -> AnyDescription:
    """Like `parse_description`, but also for classifiers of whole images."""
    if _kind_of(texts.get(METADATA_KEY, "")) != "classifier":
        return AnyDescription(*parse_description(texts, source))
    return AnyDescription(
        _parsed(texts, METADATA_KEY, ClassifierMetadata, source),
        _parsed(texts, INTERFACE_KEY, ClassifierInterface, source),
    )


def _kind_of(text: str) -> object:
    """The kind of model that a description names, whatever else is wrong with it."""
    try:
        document = json.loads(text)
    except (ValueError, RecursionError):
        return None
    return document.get("kind") if isinstance(document, dict) else None


def _parsed(texts: Mapping[str, str], key: str, kind: type[M], source: Path | str) -> M:
    if key not in texts:
        raise CheckpointError(
            f"{source} has no description by rcil-export, so its classes are unknown",
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
    """Read a JSON file that describes something.

    Args:
        path: The file.
        kind: The pydantic model of its content.
        what: The thing it describes, for the message.
        missing: The remedy if there is no file.
        wrong: The remedy if the content is wrong.
    """
    try:
        return kind.model_validate_json(path.read_bytes())
    except OSError as error:
        raise CheckpointError(f"cannot read {path}: {error.strerror}", missing) from error
    except ValidationError as error:
        raise CheckpointError(f"{path} does not describe {what}: {first_problem(error)}", wrong) from error


def first_problem(error: ValidationError) -> str:
    """The field of the first mistake, and the mistake."""
    first = error.errors()[0]
    where = ".".join(map(str, first["loc"]))
    return f"{f'{where}: ' if where else ''}{first['msg']}"


def damaged(path: Path) -> CheckpointError:
    """The error for a file that is not ONNX."""
    return CheckpointError(f"{path} is not an ONNX file, or damaged", "Export it again with rcil-export.")


def read_texts(path: Path, content: bytes | None = None) -> dict[str, str]:
    """Keys and values of the file's metadata; a `CheckpointError` names a file that is not ONNX.

    Args:
        path: The file.
        content: Its bytes, if they were read before.
    """
    try:
        with path.open("rb") if content is None else io.BytesIO(content) as file:
            return dict(_entry(value) for number, value in _fields(file, wanted=TEXTS_FIELD) if number == TEXTS_FIELD)
    except OSError as error:
        raise CheckpointError(f"cannot read {path}: {error.strerror}", "Check the path.") from error
    except ValueError as error:  # UnicodeDecodeError too
        raise damaged(path) from error


def _entry(data: bytes) -> tuple[str, str]:
    """Key and value of one entry; a missing one is an empty text."""
    found = {number: value.decode() for number, value in _fields(io.BytesIO(data))}
    return found.get(1, ""), found.get(2, "")


def _fields(file: BinaryIO, wanted: int | None = None) -> Iterator[tuple[int, bytes]]:
    """Number and bytes of every length-prefixed field, or of those with the number `wanted`; raises `ValueError`."""
    size = file.seek(0, os.SEEK_END)
    file.seek(0)
    while file.tell() < size:
        tag = _varint(file)
        number, kind = tag >> 3, tag & 7
        if number == 0:
            raise ValueError("a field without a number")
        if kind == VARINT:
            _varint(file)
            continue
        length = _varint(file) if kind == LENGTH_PREFIXED else {EIGHT_BYTES: 8, FOUR_BYTES: 4}.get(kind)
        if length is None or length > size - file.tell():
            raise ValueError("a field of an unknown kind, or longer than the file")
        if kind == LENGTH_PREFIXED and wanted in (None, number):
            yield number, file.read(length)
        else:
            file.seek(length, os.SEEK_CUR)


def _varint(file: BinaryIO) -> int:
    """A number in groups of seven bits, the lowest first; the top bit says that another group follows."""
    value = 0
    for position in range(MAX_VARINT_BYTES):
        byte = file.read(1)
        if not byte:
            raise ValueError("the file ends within a number")
        value |= (byte[0] & 0x7F) << (7 * position)
        if byte[0] < 0x80:
            return value
    raise ValueError("a number that does not end")
