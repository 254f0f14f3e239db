"""What every source offers, and what of it is wanted."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Protocol

from rcil.core.errors import ConfigError
from rcil_serve.stream.frames import Counts, Item, SourceInfo


class Source(Protocol):
    """Delivers frames in the order of time; iterated once."""

    info: SourceInfo
    counts: Counts

    def __iter__(self) -> Iterator[Item]:
        """All wanted frames and, where there is sound, its packets in between."""

    def stop(self) -> None:
        """End soon; any thread may call this. A live source that waits for data ends after its timeout."""

    def close(self) -> None:
        """Give back what it holds, once nobody iterates any more."""


@dataclass(frozen=True)
class Selection:
    """Which frames are wanted."""

    stride: int = 1
    """Every how many-th frame."""
    start: float = 0.0
    """Seconds from the beginning."""
    end: float | None = None
    """Seconds from the beginning; frames from here on are left out."""
    most: int | None = None
    """Frames at most."""

    def __post_init__(self) -> None:
        if self.stride < 1:
            raise ConfigError(f"a stride of {self.stride} leaves no frames", "Choose 1 or more.")
        if self.start < 0 or (self.end is not None and self.end <= self.start):
            raise ConfigError(
                f"nothing lies between {self.start:g} s and {self.end if self.end is not None else 'the end'}",
                "Choose --end after --start.",
            )
        if self.most is not None and self.most < 1:
            raise ConfigError(f"{self.most} frames are too few", "Choose 1 or more.")

    def wants(self, index: int, time: float, taken: int) -> bool:
        """Whether this frame is wanted.

        Args:
            index: Its place among all frames.
            time: Seconds from the beginning.
            taken: Frames that were wanted before.
        """
        inside = time >= self.start and (self.end is None or time < self.end)
        return inside and index % self.stride == 0 and not self.over(time, taken)

    def over(self, time: float, taken: int) -> bool:
        """Whether no frame from here on is wanted."""
        return (self.end is not None and time >= self.end) or (self.most is not None and taken >= self.most)

    def expected(self, frames: int, rate: float) -> int:
        """About how many of so many frames are wanted."""
        last = frames if self.end is None else min(frames, round(self.end * rate))
        wanted = -(-max(0, last - round(self.start * rate)) // self.stride)
        return wanted if self.most is None else min(wanted, self.most)
