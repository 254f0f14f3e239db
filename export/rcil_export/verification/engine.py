"""A delivered engine and its sidecar against the graph that they were built from."""

from __future__ import annotations

import hashlib
import json
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from onnx import helper

from rcil.core.errors import ConfigError, MissingDependencyError, RcilError
from rcil_export.engine.build import EngineOptions, build_engine
from rcil_export.engine.callbacks import Listener
from rcil_export.engine.errors import EngineError, NoGpuError
from rcil_export.engine.flavour import TITLES, installed
from rcil_export.engine.sidecar import EngineSidecar, read_sidecar, sidecar_path
from rcil_export.graph.onnx_file import texts_of
from rcil_export.verification.onnx_model import VerifiedGraph
from rcil_export.verification.report import Difference, Findings, compare_documents

SIDECAR, ENGINE = "Sidecar of this engine and graph", "Same engine as a fresh build"


def verify_engine(path: Path, graph: VerifiedGraph, findings: Findings, listen: Listener | None = None) -> None:
    """Make claims about an engine and its sidecar.

    The sidecar is compared with the graph, and with a fresh build if that is possible here.
    """
    beside = sidecar_path(path)
    engine = findings.read(path)
    try:
        sidecar = read_sidecar(path)
        findings.read(beside)
    except RcilError as error:
        findings.wrong(path, "sidecar", SIDECAR, error.message)
        return
    built, why = _built(sidecar, graph, findings, listen)
    expected = _expected(engine, graph) | ({} if built is None else _from_build(built[0]))
    stated = sidecar.model_dump(mode="json")
    told = compare_documents({key: stated[key] for key in expected}, expected)
    findings.add(beside, "sidecar", SIDECAR, "all fields follow from the engine and the graph", told)
    if built is None or graph.interface.shape.profile is not None:
        open_sizes = "builds for open sizes are not reproducible to the byte"
        findings.not_proved(path, "engine", ENGINE, why or open_sizes)
        return
    _, fresh = built
    for_gpus = f"{TITLES[sidecar.flavour]} {sidecar.version} for {', '.join(sidecar.gpus)}"
    differences = _bytes(f"{path.name}, built by {for_gpus}", engine, fresh)
    findings.add(path, "engine", ENGINE, f"the same {len(engine):,} bytes, {for_gpus}", differences)


def _bytes(where: str, delivered: bytes, fresh: bytes) -> Iterator[Difference]:
    if delivered != fresh:
        texts = (f"{len(data):,} bytes, sha256 {hashlib.sha256(data).hexdigest()}" for data in (delivered, fresh))
        yield Difference(where, *texts)


def _expected(engine: bytes, graph: VerifiedGraph) -> dict[str, Any]:
    """Fields of the sidecar that follow from the engine and the graph alone."""
    document = graph.document.graph
    tensors = {
        "inputs": [_tensor(value) for value in document.input],
        "outputs": [_tensor(value) for value in document.output],
    }
    profile = graph.interface.shape.profile
    return {
        "format_version": EngineSidecar.model_fields["format_version"].default,
        "engine_sha256": hashlib.sha256(engine).hexdigest(),
        "onnx_sha256": hashlib.sha256(graph.data).hexdigest(),
        "onnx_file": graph.path.name,
        "precision": graph.interface.precision,
        "profile": None if profile is None else profile.model_dump(mode="json"),
        "metadata": texts_of(graph.document),
        **tensors,
    }


def _tensor(value: Any) -> dict[str, Any]:
    kind = value.type.tensor_type
    return {
        "name": value.name,
        "dtype": str(helper.tensor_dtype_to_np_dtype(kind.elem_type)),
        "shape": [dim.dim_value if dim.HasField("dim_value") else -1 for dim in kind.shape.dim],
    }


def _from_build(built: EngineSidecar) -> dict[str, Any]:
    """Fields of the sidecar that only TensorRT knows."""
    document: dict[str, Any] = json.loads(built.model_dump_json())
    return {key: document[key] for key in ("flavour", "version", "gpus", "conv_layers")}


def _built(
    sidecar: EngineSidecar, graph: VerifiedGraph, findings: Findings, listen: Listener | None
) -> tuple[tuple[EngineSidecar, bytes] | None, str]:
    """A fresh engine with the options of the sidecar, or why there is none."""
    if sidecar.flavour == "classic":
        return None, "classic TensorRT does not build the same bytes twice"
    try:
        here = installed().get(sidecar.flavour)
        if here is None or here.version != sidecar.version:
            has = "is not installed" if here is None else f"is {here.version} here"
            return None, f"built with {TITLES[sidecar.flavour]} {sidecar.version}, which {has}"
        findings.notify(f"engine: building again for {', '.join(sidecar.gpus)}")
        options = EngineOptions(
            precision=graph.interface.precision,
            flavour=sidecar.flavour,
            gpus=sidecar.gpus,
            profile=graph.interface.shape.profile,
        )
        with tempfile.TemporaryDirectory(prefix="rcil-verify-") as folder:
            onnx, engine = Path(folder) / "model.onnx", Path(folder) / "model.engine"
            onnx.write_bytes(graph.data)
            built = build_engine(onnx, engine, options, listen)
            return (built, engine.read_bytes()), ""
    except (MissingDependencyError, ConfigError, EngineError, NoGpuError) as error:
        return None, f"it could not be built here: {error.message}"
