"""Counts transitions over a source, in constant memory."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from rcil_serve.diff.transitions import HARM, KINDS, Codes
from rcil_serve.runtime.backends import Mask
from rcil_serve.stream.frames import Frame
from rcil_serve.stream.outputs.timeline import Timeline

MAX_SECONDS = 10
"""Number of worst seconds that are kept."""
Shares = NDArray[np.float64]
"""Share of the pixels by kind [kinds]."""


@dataclass(frozen=True)
class BadSecond:
    """A second in which classes of the old model were harmed, and its worst frame."""

    second: int
    """Seconds since the start of the source, rounded down."""
    frames: int
    shares: Shares
    """Mean over its frames."""
    frame: int
    """Index of the frame with the most harm."""
    time: float
    """Time of that frame in seconds."""
    name: str
    """File name of that frame, if the source consists of image files."""
    frame_shares: Shares
    picture: bytes
    """That frame as a JPEG of old, new and changes."""

    @property
    def rank(self) -> tuple[tuple[float, ...], int]:
        """Sort key: greater is worse, and earlier seconds win ties."""
        return harm_of(self.shares), -self.second


class WorstSeconds:
    """Keeps the seconds with the most harm, compared by the kinds in `HARM` in their order.

    Args:
        draw: Encodes a frame and its codes [H, W]; called once per second that ranks among the worst.
        limit: Number of seconds to keep.
    """

    def __init__(self, draw: Callable[[Frame, Mask], bytes], limit: int = MAX_SECONDS) -> None:
        self._draw, self._limit = draw, limit
        self._kept: list[BadSecond] = []
        self._current: _Second | None = None

    def add(self, frame: Frame, codes: Mask, shares: Shares) -> None:
        """Add the next frame, in order of time."""
        second = math.floor(frame.time)
        if self._current is None or self._current.second != second:
            self._close()
            self._current = _Second(second, np.zeros(len(KINDS)))
        self._current.add(frame, codes, shares)

    def ranked(self) -> list[BadSecond]:
        """Return the worst seconds first. Seconds without harm are omitted."""
        self._close()
        return list(self._kept)

    def _close(self) -> None:
        """Rank the current second once it has ended."""
        ended, self._current = self._current, None
        if ended is None or ended.worst is None:
            return
        shares = ended.sums / ended.frames
        if len(self._kept) == self._limit and harm_of(shares) <= harm_of(self._kept[-1].shares):
            return
        frame, codes, worst = ended.worst
        picture = self._draw(frame, codes)
        bad = BadSecond(ended.second, ended.frames, shares, frame.index, frame.time, frame.name, worst, picture)
        self._kept = sorted([*self._kept, bad], key=lambda bad: bad.rank, reverse=True)[: self._limit]


def harm_of(shares: Shares) -> tuple[float, ...]:
    """The shares of the kinds in `HARM`, in that order; seconds and frames are ranked by them."""
    return tuple(float(shares[kind]) for kind in HARM)


@dataclass
class _Second:
    """The current second."""

    second: int
    sums: Shares
    frames: int = 0
    worst: tuple[Frame, Mask, Shares] | None = None
    """None while there is no harm."""

    def add(self, frame: Frame, codes: Mask, shares: Shares) -> None:
        self.sums += shares
        self.frames += 1
        worst = harm_of(np.zeros(len(KINDS)) if self.worst is None else self.worst[2])
        if harm_of(shares) > worst:
            self.worst = frame, codes, shares


class Tally:
    """Counts transitions.

    Args:
        codes: Encoder of the transitions.
        draw: Encodes a frame and its codes, for the worst seconds.
    """

    def __init__(self, codes: Codes, draw: Callable[[Frame, Mask], bytes]) -> None:
        self._codes = codes
        self.matrix = np.zeros((codes.side, codes.side), np.int64)
        """Pixel counts over all frames [old common row, new common row]."""
        self.timeline = Timeline(len(KINDS), seconds=1.0)
        """Shares of all kinds per second, or per longer step for very long sources."""
        self.worst = WorstSeconds(draw)
        self.frames = 0

    def add(self, frame: Frame, codes: Mask) -> Shares:
        """Add the next frame and its codes [H, W]; return the shares of its pixels by kind."""
        matrix = self._codes.matrix(codes)
        shares = self._codes.by_kind(matrix) / codes.size
        self.matrix += matrix
        self.timeline.add(frame.time, shares)
        self.worst.add(frame, codes, shares)
        self.frames += 1
        return shares

    @property
    def by_kind(self) -> NDArray[np.int64]:
        """Pixel counts over all frames by kind [kinds]."""
        return self._codes.by_kind(self.matrix)
