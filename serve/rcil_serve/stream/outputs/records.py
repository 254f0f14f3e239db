"""One JSON line per frame. Lines are flushed often, so a killed run keeps them in `NAME.part.jsonl`."""

from __future__ import annotations

import contextlib
import json
import os
import time
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from rcil_serve.stream.outputs.growing_file import open_lines, part_of, write_error
from rcil_serve.stream.pipeline import SegmentedFrame

FLUSH_SECONDS = 1.0


class Records:
    """Writes JSON lines with frame, time, share of each class that occurs, confidence and latency.

    Args:
        path: The file; an existing one is replaced at the end.
        names: Class names in the order of rows.
    """

    def __init__(self, path: Path, names: list[str]) -> None:
        self.path, self.part, self._names = path, part_of(path), names
        self._file = open_lines(self.part, "w")
        self._flushed = time.monotonic()

    def write(self, seen: SegmentedFrame, shares: NDArray[np.float64], lag: float) -> None:
        """Write one frame.

        Args:
            seen: The frame.
            shares: Share of its pixels by class row.
            lag: Seconds since it was decoded.
        """
        line = {
            "frame": seen.frame.index,
            "time": round(seen.frame.time, 6),
            "shares": {
                name: round(float(share), 6) for name, share in zip(self._names, shares, strict=True) if share > 0
            },
            "confidence": None if seen.found.confidence is None else round(seen.found.confidence, 4),
            "infer_ms": round(1000 * seen.infer_seconds, 3),
            "latency_ms": round(1000 * lag, 3),
        }
        if seen.frame.name:
            line["file"] = seen.frame.name
        self._put(json.dumps(line) + "\n")

    def _put(self, text: str) -> None:
        try:
            self._file.write(text)
            if time.monotonic() - self._flushed > FLUSH_SECONDS:
                self._file.flush()
                self._flushed = time.monotonic()
        except OSError as error:
            raise write_error(self.part, error) from error

    def finish(self) -> None:
        """Write the remaining lines and rename the file."""
        try:
            self._file.flush()
            os.fsync(self._file.fileno())
            self._file.close()
            self.part.replace(self.path)
        except OSError as error:
            raise write_error(self.path, error) from error

    def abandon(self) -> None:
        """Close the file after an error; its lines stay under its temporary name."""
        with contextlib.suppress(OSError):
            self._file.close()
        with contextlib.suppress(OSError):
            if not self.part.stat().st_size:
                self.part.unlink()
