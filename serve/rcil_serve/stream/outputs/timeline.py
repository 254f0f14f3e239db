"""Class shares over time, in bounded memory, and their plot."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from rcil.core.files import replacing
from rcil.model.metadata import ClassInfo
from rcil_serve.stream.frames import Counts

MAX_BINS = 2000


@dataclass
class Timeline:
    """Mean share of every class in time bins, whose length doubles whenever there are too many.

    Args:
        count: Number of classes.
        seconds: Initial length of a bin.
    """

    count: int
    seconds: float = 0.02
    _sums: dict[int, NDArray[np.float64]] = field(default_factory=dict)
    _frames: dict[int, int] = field(default_factory=dict)
    _marks: dict[tuple[str, int], float] = field(default_factory=dict)
    _dropped: int = 0

    def add(self, time: float, shares: NDArray[np.float64]) -> None:
        """Add a frame: its time in seconds and the shares of all classes [count]."""
        index = int(time / self.seconds)
        if index not in self._sums:
            self._sums[index], self._frames[index] = np.zeros(self.count), 0
        self._sums[index] += shares
        self._frames[index] += 1
        if len(self._sums) > MAX_BINS:
            self._double_bins()

    def mark(self, time: float, text: str) -> None:
        """Mark an event. Each kind is marked once per bin, and at most `MAX_BINS` times."""
        key = text, int(time / self.seconds)
        if key not in self._marks and sum(kind == text for kind, _ in self._marks) < MAX_BINS:
            self._marks[key] = time

    @property
    def marks(self) -> list[tuple[float, str]]:
        """Times and names of drops, gaps, alarms and model swaps."""
        return [(time, text) for (text, _), time in self._marks.items()]

    def mark_drops(self, time: float, counts: Counts) -> None:
        """Mark this time if frames were dropped since the last call."""
        if counts.dropped > self._dropped:
            self._dropped = counts.dropped
            self.mark(time, "frames dropped")

    def mark_gaps(self, counts: Counts) -> None:
        """Mark the start and end of every interruption."""
        for begun, length in counts.gaps:
            self.mark(begun, "gap")
            self.mark(begun + length, "gap")

    def _double_bins(self) -> None:
        sums, frames = self._sums, self._frames
        self._sums, self._frames = {}, {}
        self.seconds *= 2
        for index in sums:
            self._sums[index // 2] = self._sums.get(index // 2, np.zeros(self.count)) + sums[index]
            self._frames[index // 2] = self._frames.get(index // 2, 0) + frames[index]
        marks, self._marks = self._marks, {}
        for (text, index), time in marks.items():
            self._marks.setdefault((text, index // 2), time)

    def curves(self) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Times in seconds [bins] and mean shares [bins, count]."""
        bins = sorted(self._sums)
        times = np.array([index * self.seconds for index in bins])
        return times, np.array([self._sums[index] / self._frames[index] for index in bins]).reshape(-1, self.count)


def draw_timeline(path: Path, timeline: Timeline, classes: Sequence[ClassInfo], title: str) -> None:
    """Plot one curve per class except the background, and events as vertical lines, to a PNG."""
    from rcil.report.plots import as_png, make_figure

    times, shares = timeline.curves()
    figure = make_figure((10, 4))
    axes = figure.add_subplot()
    for row, info in enumerate(classes):
        if row == 0 or not shares[:, row].any():
            continue
        red, green, blue = (value / 255 for value in info.colour)
        axes.plot(times, 100 * shares[:, row], color=(red, green, blue), linewidth=1.5, label=info.name)
    styles = dict(zip(sorted({text for _, text in timeline.marks}), ("--", ":", "-."), strict=False))
    named: set[str] = set()
    for time, text in timeline.marks:
        style = styles.get(text, "-")
        label = None if text in named else text
        axes.axvline(time, color="#b00020", alpha=0.6, linewidth=1, linestyle=style, label=label)
        named.add(text)
    axes.set(xlabel="seconds", ylabel="share of the image in %", title=title, ylim=(0, None))
    axes.grid(alpha=0.25)
    if axes.get_legend_handles_labels()[0]:
        axes.legend(loc="center left", bbox_to_anchor=(1, 0.5), frameon=False)
    with replacing(path) as part:
        part.write_bytes(as_png(figure))
