"""The protocol of all sources, and the selection of frames."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Protocol

from rcil.core.errors import ConfigError
from rcil_serve.stream.frames import Counts, Item, SourceInfo


class Source(Protocol):
    """Delivers frames in order of time. It can be iterated once."""

    info: SourceInfo
    counts: Counts

    def __iter__(self) -> Iterator[Item]:
        """Yield the selected frames, with audio packets in between."""

    def stop(self) -> None:
        """Stop soon; may be called from any thread. A live source that waits for data stops after its timeout."""

    def close(self) -> None:
        """Release all resources, after iteration has ended."""


@dataclass(frozen=True)
class Selection:
    """Which frames to process."""

    stride: int = 1
    """Process every Nth frame."""
    start: float = 0.0
    """Time of the first frame, in seconds since the start of the source."""
    end: float | None = None
    """Time in seconds since the start of the source at which processing stops."""
    most: int | None = None
    """Maximum number of frames."""

    def __post_init__(self) -> None:
        if self.stride < 1:
            raise ConfigError(f"the stride is {self.stride}", "Choose 1 or more.")
        if self.start < 0 or (self.end is not None and self.end <= self.start):
            raise ConfigError(
                f"there are no frames between {self.start:g} s and {self.end if self.end is not None else 'the end'}",
                "Choose --end after --start.",
            )
        if self.most is not None and self.most < 1:
            raise ConfigError(f"the maximum number of frames is {self.most}", "Choose 1 or more.")

    def wants(self, index: int, time: float, taken: int) -> bool:
        """Whether a frame is selected.

        Args:
            index: Index of the frame in the source.
            time: Time of the frame in seconds.
            taken: Number of frames selected before.
        """
        inside = time >= self.start and (self.end is None or time < self.end)
        return inside and index % self.stride == 0 and not self.over(time, taken)

    def over(self, time: float, taken: int) -> bool:
        """Whether no later frame will be selected."""
        return (self.end is not None and time >= self.end) or (self.most is not None and taken >= self.most)

    def expected(self, frames: int, rate: float) -> int:
        """Estimate how many of the source's frames are selected."""
        last = frames if self.end is None else min(frames, round(self.end * rate))
        wanted = -(-max(0, last - round(self.start * rate)) // self.stride)
        return wanted if self.most is None else min(wanted, self.most)
