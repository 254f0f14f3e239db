"""The precision that losses are evaluated in."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar

import torch

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

P = ParamSpec("P")
R = TypeVar("R")

_HALF = (torch.float16, torch.bfloat16)


def full_precision(function: Callable[P, R]) -> Callable[P, R]:
    """Evaluate a loss in float32, also under autocast; float64 stays float64.

    Half-precision tensors among the arguments, also inside lists and tuples, are converted first. Squared features
    overflow float16 above 256 and log-sum-exp differences drown in bfloat16's eight bits, so every public loss
    has this decorator. Gradients have the dtype of the caller's tensors.
    """
    loose: Callable[..., R] = function

    @functools.wraps(function)
    def wrapper(*args: P.args, **kwargs: P.kwargs) -> R:
        device = next((tensor.device.type for tensor in _tensors((*args, *kwargs.values()))), "cpu")
        with torch.autocast(device_type=device, enabled=False):
            return loose(*map(_widen, args), **{name: _widen(value) for name, value in kwargs.items()})

    return wrapper


def _tensors(values: tuple[object, ...] | list[object]) -> Iterator[torch.Tensor]:
    """All tensors among values, including those in nested lists and tuples."""
    for value in values:
        if isinstance(value, torch.Tensor):
            yield value
        elif isinstance(value, (list, tuple)):
            yield from _tensors(value)


def _widen(value: Any) -> Any:
    """Value with its half-precision tensors converted to float32."""
    if isinstance(value, torch.Tensor):
        return value.float() if value.dtype in _HALF else value
    if isinstance(value, (list, tuple)) and any(isinstance(item, torch.Tensor) for item in value):
        return [_widen(item) for item in value]
    return value
