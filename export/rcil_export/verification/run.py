"""Is what was delivered what its checkpoint gives? Nothing is trusted but the checkpoint and this program."""

from __future__ import annotations

from pathlib import Path

from rcil.core.errors import CheckpointError
from rcil.core.log import Notify as Say
from rcil_export.engine.callbacks import Listener
from rcil_export.verification.findings import Findings
from rcil_export.verification.folder import verify_folder
from rcil_export.verification.onnx_model import verify_onnx
from rcil_export.verification.rebuild import Source
from rcil_export.verification.report import VerifyReport
from rcil_export.verification.triton import is_model_repository, verify_repository


def verify(
    delivered: Path,
    checkpoint: Path,
    *,
    calibrate: Path | None = None,
    say: Say = lambda text: None,
    listen: Listener | None = None,
) -> VerifyReport:
    """Export `checkpoint` again with the options that the delivered graph states, and compare everything.

    Nothing is written, but for temporary files.

    Args:
        delivered: A folder that `rcil-export` wrote, a single ONNX file, or a Triton model repository.
        checkpoint: What it was exported from.
        calibrate: The images that fp16, bf16 or int8 were measured on: measures again. Without, the choices that
            rest on them are reported as not proved.
        say: Told what is going on, a line at a time.
        listen: Progress of the engine build.
    """
    source = Source(checkpoint, calibrate)
    source.check()
    findings = Findings(delivered if delivered.is_dir() else delivered.parent, say)
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
