"""From a trained checkpoint to what is deployed, with proof that nothing was lost and nothing was added."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rcil_export.api import check, export, verify
    from rcil_export.checks.files import CheckReport
    from rcil_export.checks.result import Result
    from rcil_export.run import Exported

__all__ = ["CheckReport", "Exported", "Result", "check", "export", "verify"]

_MODULES = {
    "CheckReport": "rcil_export.checks.files",
    "Exported": "rcil_export.run",
    "Result": "rcil_export.checks.result",
}


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module '{__name__}' has no attribute '{name}'")
    return getattr(import_module(_MODULES.get(name, "rcil_export.api")), name)


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
