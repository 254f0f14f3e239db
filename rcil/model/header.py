"""Reading the header of a checkpoint: metadata and tensor shapes, without torch and without the tensors."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from rcil.core.errors import CheckpointError
from rcil.model.metadata import ATTACHED, FORMAT_VERSION, OWN, ClassifierMetadata, Metadata

METADATA_KEY = "rcil"
_MAX_HEADER = 100 * 2**20
_BYTES = {"F64": 8, "I64": 8, "F32": 4, "I32": 4, "F16": 2, "BF16": 2, "U8": 1, "I8": 1, "BOOL": 1}


@dataclass(frozen=True)
class Header:
    """The parsed header of a checkpoint."""

    metadata: Metadata
    shapes: dict[str, tuple[int, ...]]
    file_bytes: int

    @property
    def parameters(self) -> int:
        """Number of learned parameters, without running statistics."""
        return sum(math.prod(shape) for name, shape in self.shapes.items() if not is_statistic(name))

    def as_document(self, path: Path) -> dict[str, Any]:
        """The content of `rcil info --json` for the checkpoint at `path`."""
        sizes = {"file": str(path), "bytes": self.file_bytes, "parameters": self.parameters}
        return {**sizes, **self.metadata.model_dump(mode="json")}


def is_statistic(name: str) -> bool:
    """Whether a tensor is a running statistic of a norm rather than a parameter."""
    return name.endswith((".running_mean", ".running_var", ".num_batches_tracked"))


def read_header(path: Path) -> Header:
    """Read and check the header; any invalid file raises a `CheckpointError` that names it."""
    raw, size, data_start = _raw_header(path)
    texts = raw.pop("__metadata__", None)
    if not isinstance(texts, dict) or METADATA_KEY not in texts:
        raise CheckpointError(
            f"{path} is a safetensors file without RCIL metadata",
            f"Convert it with: rcil import {path} -o M.safetensors",
        )
    shapes: dict[str, tuple[int, ...]] = {}
    end = 0
    try:
        for name, entry in raw.items():
            shape = tuple(int(n) for n in entry["shape"])
            begin, stop = entry["data_offsets"]
            if stop - begin != math.prod(shape) * _BYTES[entry["dtype"]] or begin < 0:
                raise ValueError(name)
            shapes[name], end = shape, max(end, stop)
    except (KeyError, TypeError, ValueError, OverflowError) as error:
        raise _damaged(path, f"bad tensor entry {error}") from error
    if data_start + end != size:
        raise CheckpointError(
            f"{path} is truncated: {size} bytes, its header requires {data_start + end}",
            "Copy or download the file again.",
        )
    header = Header(parse_metadata(str(texts[METADATA_KEY]), path), shapes, size)
    if len(shapes) < sum(header.metadata.architecture.blocks or ()):
        raise _damaged(path, f"{len(shapes)} tensors are too few for the network that it describes")
    return header


def parse_metadata(text: str, path: Path) -> Metadata:
    """The metadata in a JSON text; `path` only names the file in errors."""
    try:
        document = json.loads(text)
        version = document["format_version"]
    except (ValueError, TypeError, KeyError, RecursionError) as error:
        raise _damaged(path, "its RCIL metadata is not the expected JSON") from error
    if not isinstance(version, int) or version > FORMAT_VERSION:
        raise CheckpointError(
            f"{path} has format version {version!r}; this program reads up to {FORMAT_VERSION}",
            "Update rcil: pip install --upgrade rcil",
        )
    kind = ClassifierMetadata if document.get("kind") == "classifier" else Metadata
    try:
        return kind.model_validate_json(text)
    except ValidationError as error:
        first = error.errors()[0]
        key = ".".join(str(part) for part in first["loc"] if part not in (OWN, ATTACHED)) or "metadata"
        raise _damaged(path, f"{key}: {first['msg']}") from error


def _raw_header(path: Path) -> tuple[dict[str, Any], int, int]:
    """The header's JSON, the file size and where tensor data starts."""
    try:
        size = path.stat().st_size
        with path.open("rb") as file:
            length = int.from_bytes(file.read(8), "little")
            if size < 8 or length > min(size - 8, _MAX_HEADER):
                raise CheckpointError(
                    f"{path} is not a safetensors file, or it is truncated ({size} bytes)",
                    f"For a .pth checkpoint use: rcil import {path} -o M.safetensors",
                )
            text = file.read(length)
    except OSError as error:
        raise CheckpointError(f"cannot read {path}: {error.strerror}", "Check the path.") from error
    try:
        raw = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise _damaged(path, "its header is not JSON") from error
    if not isinstance(raw, dict):
        raise _damaged(path, "its header is not a JSON object")
    return raw, size, 8 + length


def _damaged(path: Path, what: str) -> CheckpointError:
    return CheckpointError(f"{path} is damaged: {what}", "Restore the file from its source.")
