"""Describing an engine without TensorRT or a GPU."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from rcil_export.engine.sidecar import check_unchanged


def describe_engine(path: Path) -> dict[str, Any]:
    """JSON-ready: what the sidecar says, and the size of the engine; raises if the two do not belong together."""
    sidecar = check_unchanged(path)
    return {"engine": path.name, "bytes": path.stat().st_size, **sidecar.model_dump(mode="json")}
