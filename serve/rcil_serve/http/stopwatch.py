"""Where the time of a request goes."""

from __future__ import annotations

import time


class Stopwatch:
    """Seconds by stage; each lap ends one."""

    def __init__(self) -> None:
        self.start = self._last = time.perf_counter()
        self.seconds: dict[str, float] = {}

    def lap(self, stage: str) -> None:
        """What passed since the last lap belongs to `stage`."""
        now = time.perf_counter()
        self.seconds[stage] = self.seconds.get(stage, 0.0) + now - self._last
        self._last = now

    @property
    def passed(self) -> float:
        """Seconds since the start."""
        return time.perf_counter() - self.start

    def header(self) -> str:
        """For `Server-Timing`, which browsers show."""
        return ", ".join(f"{stage};dur={1000 * seconds:.2f}" for stage, seconds in self.seconds.items())
