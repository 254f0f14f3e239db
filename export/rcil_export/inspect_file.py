"""The description that a checkpoint, ONNX file or engine contains; torch is not imported."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from rcil.core.errors import CheckpointError
from rcil.model.header import read_header
from rcil.model.metadata import Metadata
from rcil_export.engine.sidecar import describe_engine
from rcil_export.graph.description import parse_any_description


def describe(path: Path) -> dict[str, Any]:
    """JSON-ready description of a checkpoint, an ONNX file or an engine, by the suffix of the file."""
    match path.suffix.lower():
        case ".safetensors":
            header = read_header(path)
            return {
                "kind": "checkpoint",
                "bytes": header.file_bytes,
                "parameters": header.parameters,
                **_model(header.metadata),
            }
        case ".onnx":
            return _graph(path)
        case ".engine" | ".plan":
            return {"kind": "engine", **describe_engine(path)}
        case _:
            raise CheckpointError(
                f"{path}: unknown suffix '{path.suffix}'", "Give a .safetensors, .onnx or .engine file."
            )


def _graph(path: Path) -> dict[str, Any]:
    """The description of the graph of a segmenter or a classifier."""
    from rcil_export.graph.onnx_file import load_document, texts_of
    from rcil_export.precision.record import read_record

    document = load_document(path)
    metadata, interface = parse_any_description(texts_of(document), path)
    return {
        "kind": "onnx",
        "bytes": path.stat().st_size,
        "interface": interface.model_dump(),
        "shape": str(interface.shape),
        "nodes": dict(Counter(node.op_type for node in document.graph.node).most_common()),
        **({} if (record := read_record(document, path)) is None else {"conversion": record.summary()}),
        **_model(metadata),
    }


def _model(metadata: Metadata) -> dict[str, Any]:
    return {
        "backbone": metadata.architecture.backbone,
        "folded": metadata.architecture.folded,
        "step": metadata.step,
        "classes": {c.name: c.step for c in metadata.classes},
        "colours": {c.name: list(c.colour) for c in metadata.classes},
        "mean": list(metadata.mean),
        "std": list(metadata.std),
        "colour_order": metadata.colour_order,
        "rejected": metadata.rejected,
        "lineage": [entry.model_dump(exclude_defaults=True) for entry in metadata.lineage],
    }


def lines(document: dict[str, Any]) -> Iterator[str]:
    """The description as text, one fact per line."""
    for key, value in document.items():
        if isinstance(value, dict):
            yield f"{key:14} " + ", ".join(f"{name} {inner}" for name, inner in value.items())
        elif isinstance(value, list):
            yield f"{key:14} {len(value)} entries" if key == "lineage" else f"{key:14} {', '.join(map(str, value))}"
        elif value is not None:
            yield (
                f"{key:14} {value:,}" if isinstance(value, int) and not isinstance(value, bool) else f"{key:14} {value}"
            )
