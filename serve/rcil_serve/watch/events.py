"""Events, as lines for people and JSON lines for programs."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from rcil_serve.stream.outputs.growing_file import open_lines, write_error


@dataclass(frozen=True)
class Event:
    """Something that happened during a run."""

    kind: str
    """began, raised, cleared, refused, promoted, promotion_failed, shadow_failed or ended."""
    time: float
    """Time in the source, in seconds."""
    text: str
    """Message for people."""
    facts: dict[str, Any] = field(default_factory=dict)
    """Details for programs, JSON-ready."""
    at: datetime = field(default_factory=lambda: datetime.now(UTC))
    snapshot: bytes | None = field(default=None, repr=False)
    """JPEG of the frame that caused it, for receivers that show pictures."""

    @property
    def line(self) -> str:
        """The message with its time."""
        return f"{self.time:9.1f} s  {self.text}"

    @property
    def json(self) -> str:
        """The event as one JSON line."""
        head = {"event": self.kind, "time": round(self.time, 3), "at": self.at.isoformat(timespec="milliseconds")}
        return json.dumps(head | self.facts)


class EventLog:
    """Writes events to a file and passes them on. Thread-safe.

    Args:
        path: JSON lines file; events are appended, so a restarted service continues it.
        on_event: Called with every event.
        keepers: Called with every event before `on_event`, such as `Webhook.add`.
    """

    def __init__(
        self,
        path: Path | None,
        on_event: Callable[[Event], None] = lambda event: None,
        keepers: Sequence[Callable[[Event], None]] = (),
    ) -> None:
        self._path, self._on_event, self._keepers = path, on_event, keepers
        self._lock = threading.Lock()
        self._file = None if path is None else open_lines(path, "a")

    def add(self, event: Event) -> None:
        """Write an event to the file, then pass it on."""
        with self._lock:
            try:
                if self._file is not None:
                    self._file.write(event.json + "\n")
                    self._file.flush()
            except OSError as error:
                raise write_error(self._path, error) from error
            finally:
                self._pass_on(event)

    def _pass_on(self, event: Event) -> None:
        try:
            for keep in self._keepers:
                keep(event)
        finally:
            self._on_event(event)

    def close(self) -> None:
        """Close the file."""
        if self._file is not None:
            self._file.close()
