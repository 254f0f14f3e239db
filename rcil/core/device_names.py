"""Device names that commands and task files accept: `auto`, `cpu`, `cuda` and `cuda:N`. No torch here."""

from __future__ import annotations

import re

from rcil.core.errors import ConfigError, did_you_mean

NAMES = ("auto", "cpu", "cuda")
"""Device names without a number; `cuda:N` selects the GPU with that number."""
NUMBERED = re.compile(r"cuda:(\d{1,3})")


def check_device_name(name: str) -> str:
    """Return `name`, or raise if it is not `auto`, `cpu`, `cuda` or `cuda:N`."""
    if name not in NAMES and not NUMBERED.fullmatch(name):
        raise ConfigError(
            f"unknown device '{name}'", f"{did_you_mean(name, NAMES)} A certain GPU is cuda:0, cuda:1, ..."
        )
    return name
