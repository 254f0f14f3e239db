"""Runs deployed models on images, video and HTTP requests. Nothing here imports torch."""

from __future__ import annotations

TYPE_CHECKING = False  # type checkers assume True; importing it from typing would dominate the import time
if TYPE_CHECKING:
    from typing import Any

    from rcil.core.prediction import Prediction
    from rcil_serve.model import Model, StreamFrame, open_model

__all__ = ["Model", "Prediction", "StreamFrame", "open_model"]

_MODULES = {"Prediction": "rcil.core.prediction"}


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module '{__name__}' has no attribute '{name}'")
    from importlib import import_module

    return getattr(import_module(_MODULES.get(name, "rcil_serve.model")), name)


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
