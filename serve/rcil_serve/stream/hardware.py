"""Which video hardware the machine has."""

from __future__ import annotations

from pathlib import Path

DEVICES = {"cuda": "/dev/nvidiactl", "vaapi": "/dev/dri/renderD*"}
"""Device files by FFmpeg's name of the hardware."""
TITLES = {"cuda": "NVIDIA GPU", "vaapi": "GPU with VA-API"}


def is_present(device: str) -> bool:
    """Whether there is a device of this kind; it may still fail to open."""
    pattern = Path(DEVICES[device])
    return any(pattern.parent.glob(pattern.name))


def absence(device: str) -> str:
    """Why a device cannot be used, if there is none."""
    return "" if is_present(device) else f"there is no {TITLES[device]} here ({DEVICES[device]})"
