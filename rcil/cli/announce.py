"""What a command says before it runs models."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from rcil.core.log import Notify
from rcil.hardware.devices import announce_device


def announce_inference(device: str | None, models: Iterable[Path], scale: float | None, say: Notify) -> None:
    """Say on which GPU the models run, and at which scale they see images if nobody chose one and it is not 1."""
    announce_device(device, say)
    if scale is None:
        from rcil.model.header import read_header
        from rcil.model.metadata import scale_notice

        for line in scale_notice(read_header(path).metadata for path in models):
            say(line)
