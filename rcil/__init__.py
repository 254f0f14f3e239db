"""Continual semantic segmentation with representation compensation (RCIL, CVPR 2022).

Importing `rcil` imports nothing heavy: torch is loaded when one of these names is first used.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rcil.api import StepReport, add_class, evaluate, train
    from rcil.core.prediction import Prediction
    from rcil.inference import Model, load

__version__ = "0.1.0"
__all__ = ["Model", "Prediction", "StepReport", "add_class", "evaluate", "load", "train"]

_MODULES = {"Model": "rcil.inference", "load": "rcil.inference", "Prediction": "rcil.core.prediction"}


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module '{__name__}' has no attribute '{name}'")
    return getattr(import_module(_MODULES.get(name, "rcil.api")), name)


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
