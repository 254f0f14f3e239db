"""One command: fold, convert, build, check, report."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import onnxruntime
import torch

from rcil import __version__
from rcil.core.documents import write_json
from rcil.core.errors import ConfigError, RcilError, did_you_mean
from rcil.core.files import scratch, sha256_of, working_in
from rcil.core.log import Notify as Say
from rcil.core.log import StageRecord, recorded_stages
from rcil.core.signing import PARENT_NAME, SIGNATURE_NAME
from rcil.model.metadata import Metadata
from rcil.nn import Segmenter
from rcil_export.certificate.certify import certify
from rcil_export.certificate.engine import ENGINE_GPUS
from rcil_export.checks.artefact import CheckpointArtefact, OnnxArtefact, open_artefact
from rcil_export.checks.document import check_document
from rcil_export.checks.engine import check_engine
from rcil_export.checks.layers.bisect import bisect
from rcil_export.checks.layers.quantisation import quantisation_result
from rcil_export.checks.layers.rebuild import layer_reference
from rcil_export.checks.limits import limits_for
from rcil_export.checks.lineage import compare_with_parent
from rcil_export.checks.outputs.compare import compare_outputs
from rcil_export.checks.outputs.report import OutputsReport
from rcil_export.checks.report import as_document, write_html
from rcil_export.checks.result import Result
from rcil_export.convert import Vnni, convert, deployed_metadata
from rcil_export.delivery.card import CARD_NAME
from rcil_export.delivery.complete import complete
from rcil_export.delivery.signing_options import Signing
from rcil_export.engine.build import EngineOptions, build_engine
from rcil_export.engine.callbacks import Listener
from rcil_export.engine.sidecar import EngineSidecar, sidecar_path
from rcil_export.graph.interface import Interface
from rcil_export.graph.onnx_file import write_onnx
from rcil_export.images import CheckImages
from rcil_export.precision.record import CalibrationOptions
from rcil_export.precision.replay import Converted
from rcil_export.preflight import Prepared, preflight
from rcil_export.stages import part, stages_document
from rcil_export.timing.interleaved import LatencyOptions
from rcil_export.triton.repository import publish
from rcil_export.triton.serving import Serving

Target = Literal["onnx", "engine"]
TARGETS: tuple[Target, ...] = ("onnx", "engine")
ONNX_NAME, ENGINE_NAME, JSON_NAME, HTML_NAME = "model.onnx", "model.engine", "report.json", "report.html"
FAILED_JSON_NAME, FAILED_HTML_NAME = "report.failed.json", "report.failed.html"
"""Of an export that was not published: an older model beside it is not what they speak of."""


class CheckFailedError(RcilError):
    """An export that was made and did not pass."""

    exit_code = 5


@dataclass(frozen=True)
class Request:
    """What the user wants."""

    model: Path
    output: Path
    interface: Interface
    targets: tuple[Target, ...] = ("onnx",)
    flavour: Literal["auto", "rtx", "classic"] = "auto"
    gpus: tuple[str, ...] = ()
    timing_cache: bool = True
    """See `EngineOptions.timing_cache`."""
    calibrate: Path | None = None
    calibration: CalibrationOptions | None = None
    vnni: Vnni | None = None
    """Whether the CPU that will run an int8 graph has VNNI; None: as this machine."""
    images: Path | None = None
    """To compare outputs on; `calibrate` or generated ones without."""
    parent: Path | None = None
    """The checkpoint of the step before, to tell what changed since."""
    limits: dict[str, float] = field(default_factory=dict)
    rounds: int = 20
    """Timed runs of the latency comparison; 0 leaves it out."""
    triton: Path | None = None
    name: str = "rcil"
    """Of the model in the Triton repository."""
    serving: Serving = field(default_factory=Serving)
    """How Triton runs it."""
    signing: Signing = field(default_factory=Signing)
    force: bool = False


@dataclass(frozen=True)
class Exported:
    """What was made and found.

    Example:
        >>> exported = rcil_export.export("model.safetensors", "deployed", size=(64, 96), rounds=0)
        >>> exported.files["model.onnx"].exists()
        True
        >>> exported.document["ok"]
        True
    """

    files: dict[str, Path]
    results: tuple[Result, ...]
    document: dict[str, Any]
    stages: tuple[StageRecord, ...] = ()
    """Where the time went."""

    @property
    def ok(self) -> bool:
        """Whether every check passed."""
        return all(result.ok for result in self.results)


def parse_targets(text: str) -> tuple[Target, ...]:
    """`onnx,engine` -> those names, checked; an engine comes with its ONNX."""
    names = [name.strip() for name in text.split(",") if name.strip()]
    for name in names:
        if name not in TARGETS:
            raise ConfigError(f"there is no target '{name}'", did_you_mean(name, TARGETS))
    return TARGETS if "engine" in names else ("onnx",)


def run_export(request: Request, say: Say = lambda text: None, listen: Listener | None = None) -> Exported:
    """Make everything, check it, and move it into `request.output` if it passed; the report is written either way.

    If a check failed, what an earlier export left in the folder stays, and the report has another name than its.

    Args:
        request: What to make.
        say: Told what is going on, a line at a time.
        listen: Progress of the engine build.
    """
    with recorded_stages() as stages:
        with part("reading"):
            prepared = preflight(request)
        metadata, images = prepared.metadata, prepared.images
        deployed = deployed_metadata(metadata, request.model)
        with workshop(request.output) as folder:
            say(f"ONNX: {request.interface.precision}, {request.interface.shape}")
            with part("conversion"):
                converted = _converted(request, prepared.model, deployed, say)
                made = [folder / ONNX_NAME]
                write_onnx(made[0], converted.document)
            sidecar = None
            if "engine" in request.targets:
                say("engine: building")
                with part("engine"):
                    sidecar = _build(request, made[0], folder / ENGINE_NAME, listen)
                made += [folder / ENGINE_NAME, sidecar_path(folder / ENGINE_NAME)]
            say("checking")
            with part("checks"):
                results, outputs = _check_outputs(request, prepared, made[0], converted)
                del prepared  # the network with both branches has done its part
                results += _check_cost_and_step(request, made[0], images, converted)
                if sidecar is not None:
                    with part("outputs of the engine"):
                        result, more = check_engine(made[0], made[1], sidecar, images, request.limits)
                    results, outputs = [*results, result], [*outputs, *more]
            ok = all(result.ok for result in results)
            facts = _facts(request, metadata, converted, sidecar, folder)
            document = {
                "facts": facts,
                "sha256": hashes_of(request.model, made),
                "model": deployed.model_dump(mode="json"),
                "conversion": converted.notes,
                **as_document(results, outputs),
                "stages": stages_document(stages.records),
            }
            html, json = report_paths(folder, ok=ok)
            write_html(html, f"Export of {request.model.name}", facts, results, outputs)
            write_json(json, document)
            reports = [html, json]
            search = [path.parent for path in (request.model, request.parent) if path is not None]
            whole = complete([*made, *reports], document, deployed, request.signing, search) if ok else reports
            files = put_into(request.output, whole)
    if ok and request.triton is not None:
        version = publish(
            files[ENGINE_NAME if _classic(sidecar) else ONNX_NAME],
            deployed,
            request.interface,
            request.triton,
            name=request.name,
            serving=request.serving,
            trust=request.signing.trust,
            force=request.force,
        )
        say(f"Triton: {version}")
    return Exported(files, tuple(results), document, tuple(stages.records))


def _classic(sidecar: EngineSidecar | None) -> bool:
    """Triton's TensorRT backend runs engines of classic TensorRT; one of TensorRT-RTX goes as ONNX."""
    return sidecar is not None and sidecar.flavour == "classic"


@contextmanager
def workshop(output: Path) -> Iterator[Path]:
    """A folder on the same disk as `output` that is gone in the end, so that nothing half-made is ever seen.

    `output` is held meanwhile, as two exports would mix their files there.
    """
    with working_in(output), ExitStack() as stack:
        try:
            output.mkdir(parents=True, exist_ok=True)
            folder = stack.enter_context(scratch(output, "rcil-export"))
        except OSError as error:
            raise RcilError(
                f"cannot write to {output}: {error.strerror}", "Check the folder and its permissions."
            ) from error
        yield folder


def report_paths(folder: Path, *, ok: bool) -> tuple[Path, Path]:
    """Where the page and the document of a report go, by whether the checks passed."""
    names = (HTML_NAME, JSON_NAME) if ok else (FAILED_HTML_NAME, FAILED_JSON_NAME)
    return folder / names[0], folder / names[1]


def put_into(output: Path, made: list[Path]) -> dict[str, Path]:
    """Move finished files to their places, the report and the signature last.

    With a model comes all that belongs to it: older statements and reports go first, then an older engine that is not
    replaced. A
    process that is killed in between leaves a model without a report, never with that of another one. A report that
    comes alone is of an export that failed; then the rest stays as it is.
    """
    names = {path.name for path in made}
    reports = (SIGNATURE_NAME, CARD_NAME, JSON_NAME, HTML_NAME, FAILED_JSON_NAME, FAILED_HTML_NAME)
    engine = tuple(name for name in (sidecar_path(Path(ENGINE_NAME)).name, ENGINE_NAME) if name not in names)
    try:
        for name in (*reports, *engine) if ONNX_NAME in names else ():
            (output / name).unlink(missing_ok=True)
        if ONNX_NAME in names:
            for path in output.glob("step*.sig"):
                if PARENT_NAME.fullmatch(path.name):
                    path.unlink()
        return {path.name: path.replace(output / path.name) for path in made}
    except OSError as error:
        raise RcilError(
            f"cannot write to {output}: {error.strerror}", "Check the folder and its permissions."
        ) from error


def _build(request: Request, source: Path, target: Path, listen: Listener | None) -> EngineSidecar:
    options = EngineOptions(
        precision=request.interface.precision,
        flavour=request.flavour,
        gpus=request.gpus,
        profile=request.interface.shape.profile,
        timing_cache=request.timing_cache,
    )
    return build_engine(source, target, options, listen)


def _converted(request: Request, model: Segmenter, deployed: Metadata, say: Say) -> Converted:
    return convert(
        model,
        deployed,
        request.interface,
        calibrate=request.calibrate,
        images=request.images,
        limits=limits_for("fp32", request.interface.precision, request.limits),
        calibration=request.calibration,
        vnni=request.vnni or "auto",
        say=say,
    )


def _check_outputs(
    request: Request, prepared: Prepared, graph: Path, converted: Converted
) -> tuple[list[Result], list[OutputsReport]]:
    """The graph against the checkpoint: what it is, what it and its layers give; for int8 also how it was rounded."""
    kept = (*converted.notes.get("kept_fp32", ()), *converted.notes.get("fp32_convs", ()))
    document = check_document(graph, request.model, prepared.metadata, kept=kept)
    reference = CheckpointArtefact(request.model.name, prepared.model, prepared.metadata)
    with open_artefact(graph) as candidate:
        candidate.name = graph.name
        limits = limits_for("fp32", request.interface.precision, request.limits)
        with part("outputs"):
            outputs = compare_outputs(reference, candidate, prepared.images, limits)
        with part("layers"):
            first, rebuilt = layer_reference(reference, candidate)
            layers = bisect(first, candidate, next(iter(prepared.images)).pixels, limits.node)
        results = [*document, outputs.as_result(), layers.as_result()]
        if rebuilt is not None and isinstance(candidate, OnnxArtefact) and converted.record is not None:
            with part("rounding"):
                ranges = converted.record.ranges
                results.append(quantisation_result(reference, candidate, None, measured=ranges, rebuilt=rebuilt))
    return results, [outputs]


def _check_cost_and_step(request: Request, graph: Path, images: CheckImages, converted: Converted) -> list[Result]:
    """The graph against the plain twin's, and the step against its parent."""
    latency = (
        LatencyOptions(rounds=request.rounds, warmup=1, threads=torch.get_num_threads()) if request.rounds else None
    )
    with part("certificate"):
        certificate = certify(
            graph,
            request.model,
            request.interface,
            engine="engine" in request.targets,
            latency=latency,
            memory=latency is not None,
            gpus=request.gpus or ENGINE_GPUS,
            replays=converted.repeat,
        )
    if request.parent is None:
        return [certificate]
    with part("comparison with the step before"):
        return [certificate, _since_parent(request, images)]


def _since_parent(request: Request, images: CheckImages) -> Result:
    assert request.parent is not None
    limits = limits_for("fp32", "fp32", request.limits)
    return compare_with_parent(request.model, request.parent, images, limits).as_result()


def hashes_of(checkpoint: Path, made: Sequence[Path]) -> dict[str, str]:
    """Whole hashes of the checkpoint and of every file that was made from it, by what they are."""
    return {"checkpoint": sha256_of(checkpoint), **{path.name: sha256_of(path) for path in made}}


def _facts(
    request: Request, metadata: Metadata, converted: Converted, sidecar: EngineSidecar | None, folder: Path
) -> dict[str, str]:
    interface, nodes = request.interface, len(converted.document.graph.node)
    facts = {
        "checkpoint": f"{request.model.name}, sha256 {sha256_of(request.model)[:12]}",
        "network": f"{metadata.architecture.backbone}, step {metadata.step}, {len(metadata.classes)} classes",
        "graph": f"{interface.precision}, {interface.shape}, opset {interface.opset}, {nodes} nodes",
        "outputs": ", ".join(interface.outputs),
        "model.onnx": f"{(folder / ONNX_NAME).stat().st_size:,} bytes, sha256 {sha256_of(folder / ONNX_NAME)[:12]}",
    }
    if sidecar is not None:
        size = (folder / ENGINE_NAME).stat().st_size
        facts["model.engine"] = f"{size:,} bytes, sha256 {sidecar.engine_sha256[:12]}"
        facts["TensorRT"] = f"{sidecar.flavour} {sidecar.version} for {', '.join(sidecar.gpus)}"
    facts["versions"] = f"rcil {__version__}, torch {torch.__version__}, onnxruntime {onnxruntime.__version__}"
    return facts
