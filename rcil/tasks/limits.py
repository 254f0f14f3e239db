"""Upper limits of settings. A value beyond them is a typing error: it would fail after hours, or fill the memory."""

from __future__ import annotations

from collections.abc import Mapping

MAX_SIDE = 4096
"""Largest side of a square of pixels that a network trains or is tested on."""
MAX_WORKERS = 256
MAX_LR = {"sgd": 2.0, "adamw": 0.1}
"""Largest learning rate by optimiser. Trainings diverge well below it."""
TRAINING: Mapping[str, float] = {
    "epochs": 10_000,
    "classifier_lr": 1000,
    "backbone_lr": 1000,
    "warmup": 10_000,
    "epoch_images": 10_000_000,
    "batch": 4096,
    "scale": 10,
    "memory": 100_000,
    "weight_decay": 1,
    "power": 10,
    "settle": 10_000,
    "workers": MAX_WORKERS,
    "accumulate": 1024,
}
"""Largest values of a training section; both numbers of a pair."""
MIN_TRAINING: Mapping[str, float] = {"scale": 0.05}
NETWORK: Mapping[str, float] = {
    "blocks": 100,
    "width": 512,
    "head_width": 2048,
    "skip_width": 2048,
    "pool_window": MAX_SIDE,
}
"""Largest values of a network section. Files may have wider networks; see `Channels`."""


def check_limits(value: object, largest: float | None, smallest: float | None = None) -> None:
    """Raise a ValueError, for validators, if a number, or one of several, is beyond its limits."""
    for number in value if isinstance(value, tuple) else (value,):
        if not isinstance(number, int | float):
            continue
        if largest is not None and number > largest:
            raise ValueError(f"{number:g} is too large; the maximum is {largest:g}")
        if smallest is not None and number < smallest:
            raise ValueError(f"{number:g} is too small; the minimum is {smallest:g}")


def check_lr(rates: tuple[float, ...], optimiser: str) -> None:
    """Raise a ValueError, for validators, if a learning rate is too large for the optimiser."""
    largest = MAX_LR[optimiser]
    if max(rates) > largest:
        raise ValueError(f"lr {max(rates):g} is too large for {optimiser}; the maximum is {largest:g}")
