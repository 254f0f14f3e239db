"""Continuous times for containers whose timestamps wrap around, restart or jump."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

from av.format import Flags

from rcil_serve.stream.frames import Counts

BACK = Fraction(1, 10)
"""Decoding times that go back by more than this many seconds have restarted."""
OVERLAP = Fraction(1)
"""Tolerance in seconds for a stream that follows another one over a restart, so that sound stays in sync."""
AHEAD = Fraction(10)
"""A jump ahead by more than this many seconds is an error of a broadcast format; in other formats it is a pause."""
WRAP = Fraction(2**33, 90000)
"""Seconds after which the clock of MPEG-TS and MPEG-PS starts again."""
KEPT = 100
"""Number of discontinuities to keep."""


class Clock:
    """Shifts the packets of all streams of a container, so that times go on after a restart.

    A restart is found at the first packet whose decoding time does not continue that of its stream. It gets the time
    at which it was expected, and all streams use the same shift from there on, which keeps them in sync. Packets of
    another stream that still belong to the time before keep the earlier shift.

    Args:
        broadcast: Whether the format allows discontinuities, so that large jumps ahead are not pauses.
        counts: Records the discontinuities.
    """

    def __init__(self, counts: Counts, *, broadcast: bool) -> None:
        self._counts, self._broadcast = counts, broadcast
        self._shifts = [Fraction(0)]
        self._epoch: dict[int, int] = {}
        """Index of the shift that each stream uses."""
        self._last: dict[int, Fraction] = {}
        self._step: dict[int, Fraction] = {}
        """Time of the last packet of each stream and its distance from the one before."""
        self._next: dict[int, Fraction] = {}
        """Time at which the next packet of each stream is expected."""

    def adjust(self, packet: Any) -> None:
        """Shift the timestamps of the next packet in the order of the file."""
        if packet.dts is None:
            return
        base, stream = packet.time_base, packet.stream_index
        shift = self._shift(stream, packet.dts * base)
        if shift:
            ticks = round(shift / base)
            packet.dts += ticks
            if packet.pts is not None:
                packet.pts += ticks
        time = packet.dts * base
        step = time - self._last.get(stream, time)
        if 0 < step <= OVERLAP:
            self._step[stream] = step
        self._last[stream] = time
        self._next[stream] = time + (packet.duration * base if packet.duration else self._step.get(stream, 0))

    def _shift(self, stream: int, time: Fraction) -> Fraction:
        if stream not in self._next:
            self._epoch[stream] = len(self._shifts) - 1
            return self._shifts[-1]
        expected, own = self._next[stream], self._epoch[stream]
        for epoch, shift in enumerate(self._shifts[own:], own):
            step = time + shift - expected
            if step >= (-BACK if epoch == own else -OVERLAP) and (not self._broadcast or step <= AHEAD):
                self._epoch[stream] = epoch
                return shift
        new = expected - time
        for wrapped in (self._shifts[-1] + WRAP, self._shifts[-1] - WRAP) if self._broadcast else ():
            if -OVERLAP <= time + wrapped - expected <= AHEAD:
                new = wrapped
        note_discontinuity(self._counts, float(expected), float(self._shifts[own] - new))
        self._shifts.append(new)
        self._epoch[stream] = len(self._shifts) - 1
        return new


def note_discontinuity(counts: Counts, time: float, jump: float) -> None:
    """Record that timestamps jumped by `jump` seconds at this time; only the latest are kept one by one."""
    counts.discontinuities += 1
    counts.jumps.append((round(time, 3), round(jump, 3)))
    del counts.jumps[:-KEPT]


def is_broadcast(container: Any) -> bool:
    """Whether the timestamps of a format may jump, as in MPEG-TS, MPEG-PS and HLS."""
    return bool(container.format.flags & Flags.ts_discont.value)


def lacks_timestamps(container: Any) -> bool:
    """Whether a format has no timestamps, so that FFmpeg assumes 25 fps, as for multipart JPEG over HTTP."""
    return bool(container.format.flags & Flags.no_timestamps.value)
