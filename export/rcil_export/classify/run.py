"""Export of a classifier of whole images: fold, convert, build, check, report."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import onnx
import torch

from rcil import __version__
from rcil.classify.checkpoint import load_classifier
from rcil.classify.network import ImageClassifier, fold_classifier
from rcil.core.documents import write_json
from rcil.core.files import sha256_of
from rcil.core.images import Image
from rcil.core.log import Notify as Say
from rcil.core.log import recorded_stages
from rcil.model.metadata import ClassifierMetadata
from rcil_export.certificate.certify import certify
from rcil_export.certificate.engine import ENGINE_GPUS
from rcil_export.checks.document import check_document
from rcil_export.checks.limits import limits_for
from rcil_export.checks.report import as_document, write_html
from rcil_export.checks.result import Result
from rcil_export.classify.check import IMAGES, check_images, with_variants
from rcil_export.classify.checks import compare_scores
from rcil_export.classify.interface import ClassifierInterface
from rcil_export.classify.to_onnx import classifier_to_onnx
from rcil_export.classify.variants import ScoredGraph
from rcil_export.convert import deployed_metadata
from rcil_export.delivery.complete import complete
from rcil_export.delivery.signing_options import Signing
from rcil_export.engine.build import EngineOptions, build_engine
from rcil_export.engine.callbacks import Listener
from rcil_export.engine.flavour import FlavourChoice
from rcil_export.engine.sidecar import sidecar_path
from rcil_export.graph.onnx_file import write_onnx
from rcil_export.preflight import classifier_preflight
from rcil_export.run import (
    ENGINE_NAME,
    ONNX_NAME,
    Exported,
    Target,
    hashes_of,
    put_into,
    report_paths,
    workshop,
)
from rcil_export.stages import part, stages_document
from rcil_export.timing.interleaved import LatencyOptions


@dataclass(frozen=True)
class ClassifierRequest:
    """What the user wants."""

    model: Path
    output: Path
    interface: ClassifierInterface
    targets: tuple[Target, ...] = ("onnx",)
    flavour: FlavourChoice = "auto"
    gpus: tuple[str, ...] = ()
    images: Path | None = None
    """To compare outputs on; generated ones without."""
    limits: dict[str, float] = field(default_factory=dict)
    rounds: int = 20
    """Timed runs of the latency comparison; 0 leaves it and the memory out."""
    signing: Signing = field(default_factory=Signing)


def export_classifier(
    request: ClassifierRequest, say: Say = lambda text: None, listen: Listener | None = None
) -> Exported:
    """Make everything, check it, and move it into `request.output` if it passed; the report is written either way.

    Args:
        request: What to make.
        say: Told what is going on, a line at a time.
        listen: Progress of the engine build.
    """
    with recorded_stages() as stages:
        with part("reading"):
            classifier_preflight(request)
            model, metadata = load_classifier(request.model)
            images = check_images(request.images, request.interface.shape, IMAGES)
        deployed = deployed_metadata(metadata, request.model)
        assert isinstance(deployed, ClassifierMetadata)
        with workshop(request.output) as folder:
            say(f"ONNX: fp32, {request.interface.shape}")
            with part("conversion"):
                folded = model if model.arch.folded else fold_classifier(model)[0]
                document = classifier_to_onnx(folded, deployed, request.interface)
                made = [folder / ONNX_NAME]
                write_onnx(made[0], document)
            if "engine" in request.targets:
                say("engine: building")
                with part("engine"):
                    profile = request.interface.shape.profile
                    options = EngineOptions(flavour=request.flavour, gpus=request.gpus, profile=profile)
                    build_engine(made[0], folder / ENGINE_NAME, options, listen)
                made += [folder / ENGINE_NAME, sidecar_path(folder / ENGINE_NAME)]
            say("checking")
            with part("checks"):
                results = _check(request, model, folded, document, metadata, deployed, images, made[0])
            ok = all(result.ok for result in results)
            facts = _facts(request, deployed, document, made)
            report = {
                "facts": facts,
                "sha256": hashes_of(request.model, made),
                "model": deployed.model_dump(mode="json"),
                **as_document(results),
                "stages": stages_document(stages.records),
            }
            html, json = report_paths(folder, ok=ok)
            write_html(html, f"Export of {request.model.name}", facts, results)
            write_json(json, report)
            reports = [html, json]
            search = [request.model.parent]
            whole = complete([*made, *reports], report, deployed, request.signing, search) if ok else reports
            files = put_into(request.output, whole)
    return Exported(files, results, report, tuple(stages.records))


def _check(
    request: ClassifierRequest,
    model: ImageClassifier,
    folded: ImageClassifier,
    document: onnx.ModelProto,
    metadata: ClassifierMetadata,
    deployed: ClassifierMetadata,
    images: list[Image],
    graph: Path,
) -> tuple[Result, ...]:
    """Structure and description, scores on images, and the certificate."""
    limits = limits_for("fp32", "fp32", request.limits)
    threads = torch.get_num_threads()
    latency = LatencyOptions(rounds=request.rounds, warmup=1, threads=threads) if request.rounds else None
    with part("outputs"):
        compared = compare_scores(model, folded, document, deployed, request.interface, images, limits)
        scored = ScoredGraph(document, deployed, request.interface)
        outputs = with_variants(compared, folded, scored, images, limits)
    structure, description = check_document(graph, request.model, metadata)
    with part("certificate"):
        certificate = certify(
            graph,
            request.model,
            request.interface,
            engine=True,
            latency=latency,
            memory=latency is not None,
            gpus=request.gpus or ENGINE_GPUS,
        )
    return structure, description, outputs, certificate


def _facts(
    request: ClassifierRequest, metadata: ClassifierMetadata, document: onnx.ModelProto, made: Sequence[Path]
) -> dict[str, str]:
    interface, nodes = request.interface, len(document.graph.node)
    return {
        "checkpoint": f"{request.model.name}, sha256 {sha256_of(request.model)[:12]}",
        "network": f"{metadata.architecture.backbone}, {metadata.head} head, step {metadata.step}, "
        f"{len(metadata.classes)} classes",
        "graph": f"{interface.precision}, {interface.shape}, opset {interface.opset}, {nodes} nodes",
        "outputs": ", ".join(interface.outputs),
        **{path.name: f"{path.stat().st_size:,} bytes, sha256 {sha256_of(path)[:12]}" for path in made},
        "versions": f"rcil {__version__}, torch {torch.__version__}",
    }
