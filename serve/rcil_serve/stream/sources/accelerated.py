"""Decoding in hardware, and the choice of a decoder."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import av.error
from av.codec.hwaccel import HWAccel, hwdevices_available

from rcil.core.errors import ConfigError, did_you_mean
from rcil_serve.stream.frames import SourceError
from rcil_serve.stream.hardware import DEVICES, absence, is_present

AUTO, CPU = "auto", "cpu"
FAILURES = (av.error.FFmpegError, NotImplementedError, RuntimeError)
"""What PyAV raises if hardware cannot be opened, or cannot decode the codec."""
Open = Callable[[HWAccel | None], Any]


def check_decoder(decoder: str) -> None:
    """Raise if there is no such decoder."""
    if decoder not in (AUTO, CPU, *DEVICES):
        raise ConfigError(f"unknown decoder '{decoder}'", did_you_mean(decoder, [AUTO, CPU, *DEVICES]))


def open_decoded(opened: Open, decoder: str, name: str, notices: list[str]) -> Any:
    """Open a container with the decoder that the user asked for.

    Args:
        opened: Opens the container with a kind of hardware, or without.
        decoder: `auto`, `cpu`, `cuda` or `vaapi`. With `auto`, hardware that the machine has is tried first.
        name: Name of the source for messages.
        notices: Receives a line if hardware that the machine has could not be used.
    """
    check_decoder(decoder)
    if decoder == CPU:
        return opened(None)
    if decoder != AUTO:
        return _explicit(opened, decoder, name)
    for device in DEVICES:
        if not is_present(device) or device not in hwdevices_available():
            continue
        try:
            return opened(HWAccel(device, allow_software_fallback=True))
        except FAILURES as error:
            container = opened(None)  # raises if the source is the problem
            notices.append(f"{name} is decoded by the CPU, because {device} cannot be opened: {_reason(error)}")
            return container
    return opened(None)


def _explicit(opened: Open, device: str, name: str) -> Any:
    why = f"PyAV's FFmpeg was built without {device}" if device not in hwdevices_available() else absence(device)
    if not why:
        try:
            return opened(HWAccel(device, allow_software_fallback=False))
        except FAILURES as error:
            opened(None).close()  # raises if the source is the problem
            why = _reason(error)
    raise SourceError(f"{name} cannot be decoded by {device}: {why}", "Use --decoder cpu, or auto.")


def _reason(error: BaseException) -> str:
    return str(getattr(error, "strerror", None) or error)
