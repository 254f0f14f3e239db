"""The share of the picture that each class covers: a baseline to compare with, and a plot over time."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict, Field

from rcil.core.documents import write_json
from rcil.model.class_match import match_classes
from rcil.model.metadata import ClassInfo
from rcil_export.graph.description import read_described
from rcil_serve.stream.frames import Counts
from rcil_serve.stream.outputs.timeline import Timeline, draw_timeline

Share = Annotated[float, Field(ge=0, le=1)]


class Baseline(BaseModel):
    """Mean class shares of a part of a video, stored as a file."""

    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)

    format: Literal["rcil-watch-baseline"] = "rcil-watch-baseline"
    source: str
    """Name of the source."""
    seconds: float
    """Time from the first to the last image."""
    frames: Annotated[int, Field(ge=1)]
    shares: dict[str, Share]
    """Mean share by class name."""


def read_baseline(path: Path) -> Baseline:
    """Read a baseline file."""
    hint = "Write one with: rcil-serve watch ... --save-baseline"
    return read_described(path, Baseline, "a baseline", hint, hint)


def write_baseline(path: Path, baseline: Baseline) -> None:
    """Write a baseline as JSON, atomically."""
    write_json(path, baseline.model_dump(mode="json"))


class Reference:
    """Class shares to compare with: given, or averaged over the first seconds.

    Args:
        seconds: Length of the averaging period.
        known: Shares by name to use instead.
    """

    def __init__(self, seconds: float, known: Mapping[str, float] | None = None) -> None:
        self._seconds = seconds
        self._known = known
        self._first: float | None = None
        self._sums: defaultdict[str, float] = defaultdict(float)
        self.frames = 0
        self.length = 0.0
        """Seconds from the first to the last averaged image."""
        self._full = False

    def add(self, time: float, names: Sequence[str], shares: NDArray[np.float64]) -> None:
        """Add the shares [names] of the next image; ignored after the averaging period."""
        self._first = time if self._first is None else self._first
        self._full = self._full or time - self._first >= self._seconds
        if self._full:
            return
        for name, share in zip(names, shares.tolist(), strict=True):
            self._sums[name] += share
        self.frames += 1
        self.length = time - self._first

    @property
    def shares(self) -> Mapping[str, float] | None:
        """Shares to compare with, by name; None until they are known."""
        if self._known is not None:
            return self._known
        return self.gathered if self._full else None

    @property
    def gathered(self) -> dict[str, float]:
        """Mean shares of the averaging period so far, by name."""
        return {name: total / self.frames for name, total in self._sums.items()}

    def restart(self) -> None:
        """Restart an unfinished averaging period, because the model was replaced."""
        if not self._full:
            self._first, self.frames, self.length = None, 0, 0.0
            self._sums.clear()


class History:
    """Class shares over time for a plot, across a change of models.

    Args:
        first: Classes of the first model, in the order of rows.
        later: Classes of a model that may replace it.
        counts: Frame counts of the source, to mark drops and gaps.
    """

    def __init__(self, first: Sequence[ClassInfo], later: Sequence[ClassInfo], counts: Counts) -> None:
        names = {info.name for info in first}
        self._classes = [*first, *(info for info in later if info.name not in names)]
        self._counts = counts
        self.timeline = Timeline(len(self._classes))

    def add(self, time: float, classes: Sequence[ClassInfo], shares: NDArray[np.float64]) -> None:
        """Add the shares [classes] of one frame from a model with these classes."""
        matching = match_classes(self._classes, classes)
        row = np.zeros(len(self._classes))
        row[matching.old_rows] = shares[matching.new_rows]
        self.timeline.add(time, row)
        self.timeline.mark_drops(time, self._counts)

    def mark(self, time: float, text: str) -> None:
        """Mark an event."""
        self.timeline.mark(time, text)

    def draw(self, path: Path, title: str) -> None:
        """Write the plot as a PNG."""
        self.timeline.mark_gaps(self._counts)
        draw_timeline(path, self.timeline, self._classes, title)
