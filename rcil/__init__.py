"""Continual semantic segmentation with representation compensation (RCIL, CVPR 2022).

Importing `rcil` imports nothing heavy: torch is loaded when one of these names is first used.
"""

from __future__ import annotations

TYPE_CHECKING = False  # type checkers take it for True; importing typing would take longer than all the rest
if TYPE_CHECKING:
    from typing import Any

    from rcil.api import StepReport, add_class, attach, evaluate, train
    from rcil.core.prediction import Prediction
    from rcil.inference import Model, load

__version__ = "0.2.0"
__all__ = ["Model", "Prediction", "StepReport", "add_class", "attach", "evaluate", "load", "train"]

_MODULES = {"Model": "rcil.inference", "load": "rcil.inference", "Prediction": "rcil.core.prediction"}


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module '{__name__}' has no attribute '{name}'")
    from importlib import import_module

    return getattr(import_module(_MODULES.get(name, "rcil.api")), name)


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
