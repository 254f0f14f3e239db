"""JSON files: the sidecar of an engine, and the baseline of a watch."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from random import Random
from typing import Any

from rcil.model.header import METADATA_KEY
from rcil_export.engine.sidecar import check_installed, describe_engine, read_sidecar
from rcil_export.graph.description import parse_description
from rcil_export.graph.interface import INTERFACE_KEY
from rcil_export.inspect_file import lines
from rcil_serve.watch.shares import Reference, read_baseline
from tools.fuzz.cases import Case, Reader
from tools.fuzz.mutate import as_json, damaged_json
from tools.fuzz.seeds import interface_document, metadata_document

ENGINE = b"engine"
BASELINE = {
    "format": "rcil-watch-baseline",
    "source": "yard.mp4",
    "seconds": 4.5,
    "frames": 12,
    "shares": {"background": 0.5, "ball": 0.25, "cone": 0.25},
}


def readers() -> dict[str, Reader]:
    """The readers of this module."""
    return {
        "sidecar": Reader("sidecar", make_sidecar, read_engine),
        "baseline": Reader("baseline", make_baseline, read_watch),
    }


def read_engine(folder: Path) -> None:
    """Read it as `rcil-export inspect` does, and as a server does before it starts TensorRT."""
    engine = folder / "m.engine"
    sidecar = read_sidecar(engine)
    check_installed(engine, sidecar)
    parse_description(sidecar.metadata, engine)
    document = describe_engine(engine)
    json.dumps(document)
    list(lines(document))


def read_watch(folder: Path) -> None:
    """Read it as `rcil-serve watch --baseline-from` does."""
    shares = Reference(1.0, read_baseline(folder / "b.json").shares).shares
    assert shares is not None and all(0 <= share <= 1 for share in shares.values())


def make_sidecar(random: Random) -> Case:
    """A sidecar with mistakes, also in its nested JSON texts; sometimes it belongs to another engine."""
    tree = _sidecar()
    if random.random() < 0.4:
        key, document = random.choice(((METADATA_KEY, metadata_document()), (INTERFACE_KEY, interface_document())))
        tree["metadata"][key] = damaged_json(random, document).decode("utf-8", "replace")
        text = as_json(tree)
    else:
        text = damaged_json(random, tree)
    return {"m.engine": ENGINE if random.random() < 0.9 else b"", "m.engine.json": text}


def make_baseline(random: Random) -> Case:
    """A baseline with mistakes."""
    return {"b.json": damaged_json(random, BASELINE)}


def _sidecar() -> dict[str, Any]:
    tensor = {"name": "image", "dtype": "uint8", "shape": [-1, -1, -1, 3]}
    return {
        "format_version": 1,
        "engine_sha256": hashlib.sha256(ENGINE).hexdigest(),
        "onnx_sha256": "0" * 64,
        "onnx_file": "m.onnx",
        "flavour": "rtx",
        "version": _version(),
        "gpus": ["8.6", "8.9"],
        "precision": "fp16",
        "conv_layers": {"fp16": 3},
        "inputs": [tensor],
        "outputs": [{**tensor, "name": "mask"}],
        "profile": interface_document()["shape"],
        "metadata": {METADATA_KEY: json.dumps(metadata_document()), INTERFACE_KEY: json.dumps(interface_document())},
    }


def _version() -> str:
    """Version of the installed TensorRT, so that a sidecar passes the comparison of versions."""
    from rcil_export.engine.flavour import installed

    return next((flavour.version for flavour in installed().values()), "1.0")
