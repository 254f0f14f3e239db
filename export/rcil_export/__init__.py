"""Export of trained checkpoints to ONNX and TensorRT, with proof that masks are kept and no cost is added."""

from __future__ import annotations

TYPE_CHECKING = False  # type checkers treat it as True; importing typing would take longer than everything else here
if TYPE_CHECKING:
    from typing import Any

    from rcil_export.api import check, export, verify
    from rcil_export.check_files import CheckReport
    from rcil_export.checks.result import Result
    from rcil_export.run import Exported
    from rcil_export.verification.report import VerifyReport

__all__ = ["CheckReport", "Exported", "Result", "VerifyReport", "check", "export", "verify"]

_MODULES = {
    "CheckReport": "rcil_export.check_files",
    "Exported": "rcil_export.run",
    "Result": "rcil_export.checks.result",
    "VerifyReport": "rcil_export.verification.report",
}


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module '{__name__}' has no attribute '{name}'")
    from importlib import import_module

    return getattr(import_module(_MODULES.get(name, "rcil_export.api")), name)


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
