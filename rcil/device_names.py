"""The names of devices that commands and tasks take: `auto`, `cpu`, `cuda` and `cuda:N`. No torch here."""

from __future__ import annotations

import re

from rcil.errors import ConfigError, did_you_mean

NAMES = ("auto", "cpu", "cuda")
"""The devices that have a fixed name; `cuda:N` is the GPU with that number."""
NUMBERED = re.compile(r"cuda:(\d{1,3})")


def check_device_name(name: str) -> str:
    """`name` itself; raises for anything but `auto`, `cpu`, `cuda` and `cuda:N`."""
    if name not in NAMES and not NUMBERED.fullmatch(name):
        raise ConfigError(
            f"unknown device '{name}'", f"{did_you_mean(name, NAMES)} A certain GPU is cuda:0, cuda:1, ..."
        )
    return name
