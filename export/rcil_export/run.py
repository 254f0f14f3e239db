"""The export pipeline: fold, convert, build the engine, check, report, deliver."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import onnxruntime
import torch

from rcil import __version__
from rcil.core.documents import write_json
from rcil.core.errors import RcilError
from rcil.core.files import sha256_of
from rcil.core.log import DryRun, Notify, StageRecord, recorded_stages
from rcil.core.signing import SIGNATURE_NAME
from rcil.model.header import read_header
from rcil.model.metadata import ClassifierMetadata, Metadata
from rcil_export.certificate.certify import ENGINE_GPUS, certify
from rcil_export.checks.limits import limits_for
from rcil_export.checks.lineage import compare_with_parent
from rcil_export.checks.report import as_document, write_html
from rcil_export.checks.result import Result
from rcil_export.classify.export import ClassifierExport
from rcil_export.convert import deployed_metadata
from rcil_export.delivery import CARD_NAME, ENGINE_NAME, HTML_NAME, JSON_NAME, ONNX_NAME, SIDECAR_NAME
from rcil_export.delivery.folder import complete, deliver, report_paths, working_folder
from rcil_export.engine.build import EngineOptions, build_engine
from rcil_export.engine.callbacks import Listener
from rcil_export.engine.flavour import find_flavour
from rcil_export.engine.sidecar import EngineSidecar
from rcil_export.exportable import Exportable, check_request
from rcil_export.graph.dynamo import ROUTES
from rcil_export.graph.interface import GraphInterface, GraphOptions, Interface
from rcil_export.graph.lint import is_attached
from rcil_export.graph.onnx_file import write_onnx
from rcil_export.images import CheckImages
from rcil_export.precision.replay import Converted
from rcil_export.request import Request
from rcil_export.resources import part, stages_document
from rcil_export.segmenter import SegmenterExport
from rcil_export.timing.interleaved import LatencyOptions
from rcil_export.triton.repository import publish

BYTES = {"fp32": 4, "fp16": 2, "bf16": 2, "int8": 1}
"""Bytes of one weight, by precision."""


class CheckFailedError(RcilError):
    """An export that was made and did not pass its checks."""

    exit_code = 5


@dataclass(frozen=True)
class Exported:
    """What an export wrote and what its checks found.

    Example:
        >>> exported = rcil_export.export("model.safetensors", "deployed", size=(64, 96), targets=["onnx"], rounds=0)
        >>> exported.files["model.onnx"].exists()
        True
        >>> exported.document["ok"]
        True
    """

    files: dict[str, Path]
    """The delivered files by name; only the reports if a check failed."""
    results: tuple[Result, ...]
    document: dict[str, Any]
    """The content of `report.json`."""
    stages: tuple[StageRecord, ...] = ()
    """Time and memory of every stage."""

    @property
    def ok(self) -> bool:
        """Whether every check passed."""
        return all(result.ok for result in self.results)


def exportable_kind(metadata: Metadata) -> type[Exportable]:
    """The implementation of `Exportable` for what a checkpoint holds."""
    return ClassifierExport if isinstance(metadata, ClassifierMetadata) else SegmenterExport


def interface_of(model: Path, options: GraphOptions) -> GraphInterface:
    """What the graph of a checkpoint takes and gives with these options; wrong options are refused."""
    metadata = read_header(model).metadata
    return exportable_kind(metadata).interface(model, metadata, options)


def open_exportable(request: Request) -> Exportable:
    """Read the checkpoint, and raise for everything that would fail later; nothing is converted or written."""
    check_request(request)
    return exportable_kind(read_header(request.model).metadata)(request)


def dry_run(request: Request) -> DryRun:
    """What an export would read and write, after all checks that come before its long work."""
    source = open_exportable(request)
    shape, precision = request.interface.shape, request.interface.precision
    reads = {str(request.model): f"step {source.metadata.step}, {len(source.metadata.classes)} classes"}
    if request.parent is not None:
        reads[str(request.parent)] = f"step {read_header(request.parent).metadata.step}, to tell what changed"
    writes = {str(request.output / ONNX_NAME): f"{precision}, {shape}"}
    if request.triton is not None:
        writes[str(request.triton / request.name)] = "a version in the Triton repository"
    if "engine" in request.targets:
        writes[str(request.output / ENGINE_NAME)] = find_flavour(request.flavour).title
        writes[str(request.output / SIDECAR_NAME)] = ""
    writes |= {str(request.output / name): "" for name in (JSON_NAME, HTML_NAME, CARD_NAME)}
    if request.signing.key is not None:
        writes[str(request.output / SIGNATURE_NAME)] = f"signed with {request.signing.key}"
    size = read_header(request.model).parameters * BYTES[precision] / 2**20
    needs = {"disk": f"{size:.1f} MiB of weights a file", "checks": f"{len(source.images)} images through both forms"}
    if request.targets_reason:
        needs["targets"] = request.targets_reason
    return DryRun({**reads, "to compare on": source.images.description}, writes, needs)


def run_export(request: Request, notify: Notify = lambda text: None, listen: Listener | None = None) -> Exported:
    """Make everything, check it, and move it into `request.output` if it passed; the report is written either way.

    If a check failed, the files of an earlier export stay in the folder, and the new report gets another name.

    Args:
        request: What to make.
        notify: Receives a line of text at every stage.
        listen: Receives the progress of the engine build.
    """
    with recorded_stages() as stages:
        with part("reading"):
            source = open_exportable(request)
        images, summary, proves_engine = source.images, source.summary, source.proves_engine
        deployed = deployed_metadata(source.metadata, request.model)
        if request.targets_reason:
            notify(request.targets_reason)
        with working_folder(request.output) as folder:
            notify(f"ONNX: {request.interface.precision}, {request.interface.shape}")
            with part("conversion"):
                converted = source.convert(deployed, notify)
                made = [folder / ONNX_NAME]
                write_onnx(made[0], converted.document)
            sidecar = None
            if "engine" in request.targets:
                notify("engine: building")
                with part("engine"):
                    sidecar = _build(request, made[0], folder / ENGINE_NAME, listen)
                made += [folder / ENGINE_NAME, folder / SIDECAR_NAME]
            notify("checking")
            with part("checks"):
                results, outputs = source.check(made[0], converted, sidecar)
                del source  # the certificate needs the memory of the network with both branches
                results += _check_cost_and_step(request, made[0], images, converted, proves_engine=proves_engine)
            ok = all(result.ok for result in results)
            facts = _facts(request, summary, converted, sidecar, made)
            document = {
                "facts": facts,
                "sha256": {"checkpoint": sha256_of(request.model), **{path.name: sha256_of(path) for path in made}},
                "model": deployed.model_dump(mode="json"),
                "conversion": converted.notes,
                **as_document(results, outputs),
                "stages": stages_document(stages.records),
            }
            html, json = report_paths(folder, ok=ok)
            write_html(html, f"Export of {request.model.name}", facts, results, outputs)
            write_json(json, document)
            search = [path.parent for path in (request.model, request.parent) if path is not None]
            whole = complete([*made, html, json], document, deployed, request.signing, search) if ok else [html, json]
            files = deliver(request.output, whole)
    if ok and request.triton is not None:
        _publish(request, files, deployed, sidecar, notify)
    return Exported(files, tuple(results), document, tuple(stages.records))


def _publish(
    request: Request, files: dict[str, Path], deployed: Metadata, sidecar: EngineSidecar | None, notify: Notify
) -> None:
    """Add a version to the Triton repository, whose TensorRT backend runs engines of classic TensorRT only."""
    assert request.triton is not None
    assert isinstance(request.interface, Interface)
    classic = sidecar is not None and sidecar.flavour == "classic"
    version = publish(
        files[ENGINE_NAME if classic else ONNX_NAME],
        deployed,
        request.interface,
        request.triton,
        name=request.name,
        serving=request.serving,
        trust=request.signing.trust,
        force=request.force,
    )
    notify(f"Triton: {version}")


def _build(request: Request, source: Path, target: Path, listen: Listener | None) -> EngineSidecar:
    options = EngineOptions(
        precision=request.interface.precision,
        flavour=request.flavour,
        gpus=request.gpus,
        profile=request.interface.shape.profile,
        timing_cache=request.timing_cache,
    )
    return build_engine(source, target, options, listen)


def _check_cost_and_step(
    request: Request, graph: Path, images: CheckImages, converted: Converted, *, proves_engine: bool
) -> list[Result]:
    """The graph against that of the plain twin, and the checkpoint against that of the step before."""
    threads = torch.get_num_threads()
    latency = LatencyOptions(rounds=request.rounds, warmup=1, threads=threads) if request.rounds else None
    with part("certificate"):
        certificate = certify(
            graph,
            request.model,
            request.interface,
            engine=proves_engine,
            latency=latency,
            memory=latency is not None,
            gpus=request.gpus or ENGINE_GPUS,
            replays=converted.repeat,
        )
    if request.parent is None:
        return [certificate]
    with part("comparison with the step before"):
        limits = limits_for("fp32", "fp32", request.limits)
        return [certificate, compare_with_parent(request.model, request.parent, images, limits).as_result()]


def _facts(
    request: Request, summary: str, converted: Converted, sidecar: EngineSidecar | None, made: Sequence[Path]
) -> dict[str, str]:
    interface, nodes = request.interface, len(converted.document.graph.node)
    sizes = {path.name: f"{path.stat().st_size:,} bytes, sha256 {sha256_of(path)[:12]}" for path in made[:2]}
    facts = {
        "checkpoint": f"{request.model.name}, sha256 {sha256_of(request.model)[:12]}",
        "network": summary,
        "graph": f"{interface.precision}, {interface.shape}, opset {interface.opset}, {nodes} nodes",
        "route": ROUTES[is_attached(converted.document)],
        "outputs": ", ".join(interface.outputs),
        **sizes,
    }
    if sidecar is not None:
        facts["TensorRT"] = f"{sidecar.flavour} {sidecar.version} for {', '.join(sidecar.gpus)}"
    facts["versions"] = f"rcil {__version__}, torch {torch.__version__}, onnxruntime {onnxruntime.__version__}"
    return facts
