"""Shares of classes over time for a plot, also across a change of models."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from rcil.model.class_match import match_classes
from rcil.model.metadata import ClassInfo
from rcil_serve.stream.frames import Counts
from rcil_serve.stream.outputs.timeline import Timeline, draw_timeline


class History:
    """A timeline of the classes of the first model and of those that later ones may bring.

    Args:
        first: Classes of the first model, in the order of rows.
        later: Classes of a model that may follow.
        counts: Of the source, for the marks of drops and gaps.
    """

    def __init__(self, first: Sequence[ClassInfo], later: Sequence[ClassInfo], counts: Counts) -> None:
        names = {info.name for info in first}
        self._classes = [*first, *(info for info in later if info.name not in names)]
        self._counts = counts
        self.timeline = Timeline(len(self._classes))

    def add(self, time: float, classes: Sequence[ClassInfo], shares: NDArray[np.float64]) -> None:
        """Shares [classes] of one frame, seen by a model with these classes."""
        matching = match_classes(self._classes, classes)
        row = np.zeros(len(self._classes))
        row[matching.old_rows] = shares[matching.new_rows]
        self.timeline.add(time, row)
        self.timeline.mark_drops(time, self._counts)

    def mark(self, time: float, text: str) -> None:
        """An event."""
        self.timeline.mark(time, text)

    def draw(self, path: Path, title: str) -> None:
        """The plot, a PNG."""
        self.timeline.mark_gaps(self._counts)
        draw_timeline(path, self.timeline, self._classes, title)
