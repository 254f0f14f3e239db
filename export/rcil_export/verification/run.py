"""Verifying a delivery against its checkpoint; only the checkpoint and this program are trusted."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from rcil.core.errors import CheckpointError
from rcil.core.log import Notify
from rcil.core.signing import PARENT_NAME, SIGNATURE_NAME
from rcil_export.delivery import (
    CARD_NAME,
    DELIVERED,
    ENGINE_NAME,
    FAILED_HTML_NAME,
    FAILED_JSON_NAME,
    HTML_NAME,
    JSON_NAME,
    ONNX_NAME,
    SIDECAR_NAME,
)
from rcil_export.delivery.card import card_text
from rcil_export.engine.caches import runtime_cache_path
from rcil_export.engine.callbacks import Listener
from rcil_export.verification.engine import verify_engine
from rcil_export.verification.onnx_model import verify_onnx
from rcil_export.verification.rebuild import Source
from rcil_export.verification.report import EXTRA, Findings, VerifyReport, compare_lines, extra_files
from rcil_export.verification.report_file import NUMBERS, verify_report
from rcil_export.verification.triton import is_model_repository, verify_repository

REPORTS = (HTML_NAME, FAILED_HTML_NAME, FAILED_JSON_NAME)
"""Files of an export that hold nothing but measurements and pictures."""
CARD, SIGNED = "Model card of this report", "Signature"


def verify(
    delivered: Path,
    checkpoint: Path,
    *,
    calibrate: Path | None = None,
    notify: Notify = lambda text: None,
    listen: Listener | None = None,
) -> VerifyReport:
    """Export `checkpoint` again with the options that the delivered graph states, and compare everything.

    Only temporary files are written.

    Args:
        delivered: A folder that `rcil-export` wrote, a single ONNX file, or a Triton model repository.
        checkpoint: The checkpoint it was exported from.
        calibrate: The images that fp16, bf16 or int8 were measured on, to measure again. Without them, the choices
            that depend on them are reported as not proved.
        notify: Receives a line of text at every stage.
        listen: Receives the progress of the engine build.
    """
    source = Source(checkpoint, calibrate)
    source.check()
    findings = Findings(delivered if delivered.is_dir() else delivered.parent, notify)
    if is_model_repository(delivered):
        verify_repository(delivered, source, findings)
    elif delivered.is_dir():
        verify_folder(delivered, source, findings, listen)
    elif delivered.suffix.lower() == ".onnx":
        verify_onnx(delivered, source, findings)
    else:
        raise CheckpointError(
            f"{delivered} is neither a delivered folder, an ONNX file nor a Triton model repository",
            "Name the folder that rcil-export wrote, its model.onnx, or the repository.",
        )
    return VerifyReport(
        delivered=str(delivered),
        checkpoint=str(checkpoint),
        checkpoint_sha256=source.sha256,
        claims=tuple(findings.claims),
        files=findings.files,
        interfaces=findings.interfaces,
    )


def verify_folder(folder: Path, source: Source, findings: Findings, listen: Listener | None = None) -> None:
    """Make claims about every file in a folder that `rcil-export` wrote."""
    model, engine = folder / ONNX_NAME, folder / ENGINE_NAME
    if not model.is_file():
        raise CheckpointError(
            f"{folder} has no {ONNX_NAME} and is not a Triton model repository",
            "Name the folder that rcil-export wrote.",
        )
    graph = verify_onnx(model, source, findings)
    if engine.exists() and graph is not None:
        verify_engine(engine, graph, findings, listen)
    elif engine.exists():
        findings.not_proved(engine, "engine", "Engine of this graph", f"{ONNX_NAME} does not say what it is")
    elif (folder / SIDECAR_NAME).exists():
        findings.wrong(folder / SIDECAR_NAME, "sidecar", "Sidecar of an engine", f"there is no {ENGINE_NAME}")
    report = verify_report(folder / JSON_NAME, graph, source, findings) if (folder / JSON_NAME).exists() else None
    if (folder / CARD_NAME).exists():
        verify_card(folder / CARD_NAME, report, source, findings)
    for path in (folder / name for name in REPORTS):
        if path.exists():
            findings.read(path)
            findings.not_proved(path, "numbers", NUMBERS, "they were measured, and are not measured again")
    for path in sorted(folder.iterdir()):
        if path.name == SIGNATURE_NAME or PARENT_NAME.fullmatch(path.name):
            findings.not_proved(path, "signature", SIGNED, "rcil-export verify-signature does that, with a key")
    for path in extra_files(folder, {*DELIVERED, *REPORTS}):
        if not PARENT_NAME.fullmatch(path.name) or path.is_symlink() or path.is_dir():
            own = runtime_cache_path(engine).name == path.name
            findings.wrong(path, "extra", EXTRA, "kernels of one machine: delete it" if own else "an unknown file")


def verify_card(path: Path, report: dict[str, Any] | None, source: Source, findings: Findings) -> None:
    """Make a claim about the model card, which is generated from the report."""
    text = findings.read(path).decode("utf-8", "replace")
    if report is None:
        findings.not_proved(path, "card", CARD, f"there is no {JSON_NAME} that it could be made from")
        return
    names = (ONNX_NAME, ENGINE_NAME, SIDECAR_NAME, HTML_NAME, JSON_NAME)
    files = [path.with_name(name) for name in names if path.with_name(name).exists()]
    try:
        wanted = card_text(report, source.metadata, files, signed=path.with_name(SIGNATURE_NAME).exists())
    except (LookupError, TypeError, ValueError, AttributeError):
        findings.wrong(path, "card", CARD, f"no card can be made from {JSON_NAME}")
        return
    findings.add(path, "card", CARD, "it says what the report says", compare_lines(path.name, text, wanted))
