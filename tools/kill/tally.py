"""Counts and problems of a scenario."""

from __future__ import annotations

import math
import time
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from tools.kill.whole import is_temporary


@dataclass
class Tally:
    """Counts and problems of one scenario."""

    wanted: int
    """Requested number of kills."""
    minutes: float = math.inf
    """Time limit for kills."""
    kills: int = 0
    kills_after_output: int = 0
    """Kills after the first output."""
    finished: int = 0
    """Runs that were allowed to finish; differences from the undisturbed run are listed as problems."""
    left_after_kills: int = 0
    """Total number of temporary files and folders found after kills."""
    left_in_the_end: int = 0
    """Temporary files and folders that remained after a finished run."""
    seconds_undisturbed: float = 0.0
    seconds: float = 0.0
    requests: int = 0
    """Answered HTTP requests."""
    reloads: int = 0
    problems: list[str] = field(default_factory=list)
    begun: float = field(default_factory=time.monotonic)

    @property
    def left(self) -> int:
        """Number of remaining kills."""
        return self.wanted - self.kills if time.monotonic() < self.begun + 60 * self.minutes else 0

    def killed(self, *, after_output: bool) -> None:
        """Count one kill."""
        self.kills += 1
        self.kills_after_output += after_output

    def note(self, what: str, problems: list[str]) -> None:
        """Record problems and when they were found."""
        self.problems.extend(f"kill {self.kills}, {what}: {problem}" for problem in problems)

    def as_document(self) -> dict[str, Any]:
        """The results as JSON-ready values."""
        fields = asdict(self)
        for name in ("wanted", "minutes", "begun"):
            del fields[name]
        rounded = {name: round(value, 1) if isinstance(value, float) else value for name, value in fields.items()}
        return {**rounded, "ok": not self.problems}


def left_in(folder: Path) -> int:
    """Count temporary files and folders in a folder, and those next to it that carry its name."""
    inside = [path for path in folder.rglob("*") if is_temporary(path.relative_to(path.parent))]
    return len(inside) + sum(1 for _ in folder.parent.glob(f".{folder.name}.*"))
