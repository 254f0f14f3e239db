"""Check the HTTP server against its own schema, and its limits under load.

A tiny network with random weights is exported and served. First, in process, valid, invalid and nearly valid requests
are generated from the OpenAPI document. Every response must be one that the document declares, and none a 5xx. Then
many clients send requests to a server process at once: no request may be lost and no mask wrong.

Example:
    python -m tools.schema_check --examples 300 --json docs/reliability/http.json
"""

from __future__ import annotations

import argparse
import tempfile
from collections import Counter
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch

from rcil.core.documents import write_json
from rcil.model.architecture import Architecture
from rcil.model.metadata import Metadata, class_table
from rcil.nn import build, fold
from rcil_export.graph.export import to_onnx
from rcil_export.graph.interface import Interface
from rcil_export.graph.onnx_file import write_onnx
from rcil_export.graph.shapes import parse_shape
from rcil_serve.http.app import make_app
from rcil_serve.http.options import HttpOptions
from tools.schema_check.load import under_load
from tools.schema_check.schema import hold_to_schema

LIMITS: dict[str, Any] = {"max_bytes": 8000, "max_pixels": 4000}
"""Small limits, so that generated requests exceed them."""


def export(path: Path, step: int) -> Path:
    """Write a folded ResNet-18 with four channels and random weights after `step` steps as ONNX."""
    torch.manual_seed(step)
    names = [["background", "road"], ["cone"]][: step + 1]
    model = build(Architecture(backbone="resnet18", width=4, head_width=8), names)
    with torch.no_grad():
        model.train()(torch.randn(2, 3, 64, 64))
    metadata = Metadata(architecture=model.arch, classes=class_table(names), step=step)
    shape = parse_shape(None, "16x16:96x128:256x256", "1:1:4")
    write_onnx(path, to_onnx(fold(model.eval())[0], metadata, Interface(shape=shape, outputs=("mask", "confidence"))))
    return path


def against_schema(folder: Path, examples: int) -> dict[str, Any]:
    """Count responses by operation and status; raise at the first violation."""
    new, old = export(folder / "new.onnx", 1), export(folder / "old.onnx", 0)
    app = make_app(HttpOptions(new, previous=old, threads=1, timeout=600, **LIMITS))
    statuses = hold_to_schema(app, examples)
    total = sum(statuses.values(), Counter[int]())
    return {
        "schemathesis": version("schemathesis"),
        "requests": total.total(),
        "server_errors": sum(count for status, count in total.items() if status >= 500),
        "by_status": _sorted(total),
        "by_operation": {name: _sorted(counted) for name, counted in statuses.items()},
    }


def _sorted(counted: Counter[int]) -> dict[str, int]:
    return {str(status): counted[status] for status in sorted(counted)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--examples", type=int, default=50, help="requests per operation and generator (50)")
    parser.add_argument("--clients", type=int, default=64, help="concurrent clients (64)")
    parser.add_argument("--requests", type=int, default=2000, help="total number of requests (2000)")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures to FILE")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        schema = against_schema(folder, arguments.examples)
        print(f"{schema['requests']} requests against the schema, by status: {schema['by_status']}")
        load = under_load(folder / "new.onnx", folder, arguments.clients, arguments.requests)
        print(f"{arguments.clients} clients: {load}")
    if arguments.json:
        write_json(arguments.json, {"schema": schema, "load": load})
    if load["lost"] or load["wrong_masks"]:
        raise SystemExit("the server lost requests or returned wrong masks")


if __name__ == "__main__":
    main()
