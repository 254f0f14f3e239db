"""What an export would take, after the checks that come before its long work."""

from __future__ import annotations

from rcil.classify.checkpoint import load_classifier
from rcil.core.dry_run import DryRun
from rcil.core.signing import SIGNATURE_NAME
from rcil.model.header import read_header
from rcil_export.classify.run import ClassifierRequest
from rcil_export.delivery.card import CARD_NAME
from rcil_export.engine.flavour import find_flavour
from rcil_export.engine.sidecar import sidecar_path
from rcil_export.images import images_for
from rcil_export.preflight import MOST_IMAGES, classifier_preflight, preflight
from rcil_export.run import ENGINE_NAME, HTML_NAME, JSON_NAME, ONNX_NAME, Request

BYTES = {"fp32": 4, "fp16": 2, "bf16": 2, "int8": 1}
"""Of a weight."""


def dry_run(request: Request | ClassifierRequest) -> DryRun:
    """The checks that come before an export's long work; nothing is converted."""
    shape, precision = request.interface.shape, request.interface.precision
    reads, writes = {}, {str(request.output / ONNX_NAME): f"{precision}, {shape}"}
    if isinstance(request, Request):
        prepared = preflight(request)
        metadata, images = prepared.metadata, prepared.images
        if request.parent is not None:
            reads[str(request.parent)] = f"step {read_header(request.parent).metadata.step}, to tell what changed"
        if request.triton is not None:
            writes[str(request.triton / request.name)] = "a version in the Triton repository"
    else:
        classifier_preflight(request)
        metadata = load_classifier(request.model)[1]
        images = images_for(request.images, shape, most=MOST_IMAGES)
    if "engine" in request.targets:
        engine = request.output / ENGINE_NAME
        writes |= {str(engine): find_flavour(request.flavour).title, str(sidecar_path(engine)): ""}
    writes |= {str(request.output / name): "" for name in (JSON_NAME, HTML_NAME, CARD_NAME)}
    if request.signing.key is not None:
        writes[str(request.output / SIGNATURE_NAME)] = f"signed with {request.signing.key}"
    header = read_header(request.model)
    size = header.parameters * BYTES[precision] / 2**20
    reads = {str(request.model): f"step {metadata.step}, {len(metadata.classes)} classes", **reads}
    return DryRun(
        {**reads, "to compare on": images.description},
        writes,
        {"disk": f"{size:.1f} MiB of weights a file", "checks": f"{len(images)} images through both forms"},
    )
