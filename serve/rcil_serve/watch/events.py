"""What happened, as a line for people and a line of JSON for programs."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from rcil_serve.stream.outputs.growing_file import not_written, open_lines


@dataclass(frozen=True)
class Event:
    """Something the user should know."""

    kind: str
    """began, raised, cleared, refused, promoted, promotion_failed, shadow_failed or ended."""
    time: float
    """Seconds of the source."""
    text: str
    """For people."""
    facts: dict[str, Any] = field(default_factory=dict)
    """For programs, JSON-ready."""
    at: datetime = field(default_factory=lambda: datetime.now(UTC))

    @property
    def line(self) -> str:
        """For people, with the time."""
        return f"{self.time:9.1f} s  {self.text}"

    @property
    def json(self) -> str:
        """For programs, one line."""
        head = {"event": self.kind, "time": round(self.time, 3), "at": self.at.isoformat(timespec="milliseconds")}
        return json.dumps(head | self.facts)


class EventLog:
    """Passes events on, and writes them to a file as they come; threads may share it.

    Args:
        path: The file, one JSON a line; what is there stays, as a service that is started again goes on with it.
        tell: Gets every event.
    """

    def __init__(self, path: Path | None, tell: Callable[[Event], None] = lambda event: None) -> None:
        self._path, self._tell = path, tell
        self._lock = threading.Lock()
        self._file = None if path is None else open_lines(path, "a")

    def add(self, event: Event) -> None:
        """Note one event; it is in the file, whatever becomes of this process, before anybody is told."""
        with self._lock:
            try:
                if self._file is not None:
                    self._file.write(event.json + "\n")
                    self._file.flush()
            except OSError as error:
                raise not_written(self._path, error) from error
            finally:
                self._tell(event)

    def close(self) -> None:
        """Close the file."""
        if self._file is not None:
            self._file.close()
