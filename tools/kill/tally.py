"""What was done and found in a scenario."""

from __future__ import annotations

import math
import time
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from tools.kill.whole import is_temporary


@dataclass
class Tally:
    """Of one scenario."""

    wanted: int
    """Kills."""
    minutes: float = math.inf
    """After which there are no more kills."""
    kills: int = 0
    kills_after_output: int = 0
    """Those that came when the first output was there already."""
    finished: int = 0
    """Runs that came to their end; what differs from the undisturbed one is among the problems."""
    left_after_kills: int = 0
    """Temporary files and folders found after kills, all in all."""
    left_in_the_end: int = 0
    """Those that were still there after a run that came to its end."""
    seconds_undisturbed: float = 0.0
    seconds: float = 0.0
    requests: int = 0
    """Answered over HTTP."""
    reloads: int = 0
    problems: list[str] = field(default_factory=list)
    begun: float = field(default_factory=time.monotonic)

    @property
    def left(self) -> int:
        """How many kills are to come."""
        return self.wanted - self.kills if time.monotonic() < self.begun + 60 * self.minutes else 0

    def killed(self, *, after_output: bool) -> None:
        """Count one."""
        self.kills += 1
        self.kills_after_output += after_output

    def note(self, what: str, problems: list[str]) -> None:
        """Keep problems with where they were found."""
        self.problems.extend(f"kill {self.kills}, {what}: {problem}" for problem in problems)

    def as_document(self) -> dict[str, Any]:
        """JSON-ready."""
        fields = asdict(self)
        for name in ("wanted", "minutes", "begun"):
            del fields[name]
        rounded = {name: round(value, 1) if isinstance(value, float) else value for name, value in fields.items()}
        return {**rounded, "ok": not self.problems}


def left_in(folder: Path) -> int:
    """Temporary files and folders in a folder and below, and beside it of its name."""
    inside = [path for path in folder.rglob("*") if is_temporary(path.relative_to(path.parent))]
    return len(inside) + sum(1 for _ in folder.parent.glob(f".{folder.name}.*"))
