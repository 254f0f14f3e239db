"""Plots as PNG bytes; the same input gives the same bytes. Nothing here imports torch or pyplot."""

from __future__ import annotations

import io
import math
import warnings
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from matplotlib import colormaps
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from numpy.typing import NDArray

DPI = 120
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000", "#8C8C8C", "#882255")
"""The colour-blind safe palette of Okabe and Ito, with grey and wine red instead of the faint yellow."""
MARKERS = ("o", "s", "^", "D", "v", "P", "X", "<", ">")
DARK, GREY = "#1B1F24", "#6E7781"
MAX_CELLS_WITH_VALUES = 25
MAX_BARS_WITH_VALUES = 40
MAX_LABELS = 76
LONGEST_LABEL = 24


@dataclass(frozen=True)
class Curve:
    """A curve of mean IoU over steps, as shares of 1."""

    name: str
    means: Sequence[float | None]
    """One value per step; None leaves a gap."""
    deviations: Sequence[float | None] = ()
    """Standard deviation over seeds, one per step; empty for no error bars."""


@dataclass(frozen=True)
class Panel:
    """One set of axes."""

    title: str
    curves: Sequence[Curve]
    levels: Sequence[Curve] = ()
    """Methods with a single value, such as joint training, drawn as dashed horizontal lines."""


def confusion_plot(matrix: NDArray[np.int64], names: Sequence[str], first_new: int) -> bytes:
    """Plot the confusion matrix, in percent of each true class.

    Args:
        matrix: Counts [C, C], true class by predicted class; a row without pixels is drawn grey.
        names: Names of the C classes. With many classes, only every second or third label is written.
        first_new: The first row of the latest step; lines separate old and new classes. 0 or C: no lines.
    """
    count = len(names)
    totals = matrix.sum(axis=1, keepdims=True)
    shares = np.divide(100.0 * matrix, totals, out=np.full(matrix.shape, np.nan), where=totals > 0)
    side = min(max(0.42 * count, 2.5), 11.0)
    figure = make_figure((side + 3.0, side + 2.0))
    axes = figure.add_subplot()
    colours = colormaps["Blues"].with_extremes(bad="#D8DCE0")
    image = axes.imshow(shares, cmap=colours, vmin=0, vmax=100, interpolation="nearest")
    bar = figure.colorbar(image, ax=axes, shrink=0.8)
    bar.set_label("share of the true class's pixels, %")
    if count <= MAX_CELLS_WITH_VALUES:
        _write_values(axes, shares)
    if 0 < first_new < count:
        for line in (axes.axhline, axes.axvline):
            line(first_new - 0.5, color=COLOURS[1], linewidth=1.5)
    ticks = range(0, count, math.ceil(count / MAX_LABELS))
    labels = [_label(names[index]) for index in ticks]
    size = 9 if count <= MAX_CELLS_WITH_VALUES else 7
    axes.set_xticks(ticks, labels, rotation=90, fontsize=size)
    axes.set_yticks(ticks, labels, fontsize=size)
    axes.set_xlabel("predicted class")
    axes.set_ylabel("true class")
    lines = "\nlines: old classes | new classes" if 0 < first_new < count else ""
    axes.set_title(f"Confusion, % of each true class{lines}", fontsize=11)
    return as_png(figure)


def class_bars(
    names: Sequence[str],
    before: Sequence[float | None] | None,
    after: Sequence[float | None],
    labels: tuple[str, str] = ("before", "after"),
) -> bytes:
    """Plot the IoU of every class before and after, one class per row.

    Args:
        names: Names of the C classes.
        before: C shares of 1, with None for unknown classes; None draws `after` only.
        after: C shares of 1, with None for classes that never occur.
        labels: Legend labels of the two.
    """
    groups = [(labels[1], COLOURS[0], after)]
    if before is not None:
        groups.insert(0, (labels[0], COLOURS[4], before))
    rows = np.arange(len(names))
    few = len(names) <= MAX_BARS_WITH_VALUES
    height = len(names) * (0.22 * len(groups) + 0.08 if few else 0.2)
    figure = make_figure((8.0, max(height, 0.8) + 1.4))
    axes = figure.add_subplot()
    thickness = 0.8 / len(groups)
    for index, (label, colour, shares) in enumerate(groups):
        heights = rows + (index - (len(groups) - 1) / 2) * thickness
        values = _percent(shares)
        axes.barh(heights, np.nan_to_num(values), height=thickness, color=colour, label=label)
        for height, value in zip(heights, values, strict=True) if few else ():
            text = "–" if math.isnan(value) else f"{value:.1f}"
            axes.text(0.8 + np.nan_to_num(value), height, text, va="center", fontsize=7, color=DARK)
    axes.set_yticks(rows, [_label(name) for name in names], fontsize=9 if few else 7)
    axes.set_ylim(len(names) - 0.4, -0.6)
    axes.set_xlim(0, 108)
    axes.set_xticks(range(0, 101, 20))
    axes.set_xlabel("IoU, %")
    axes.set_title("IoU per class", fontsize=11)
    axes.grid(axis="x", color="#E3E6E9", linewidth=0.8)
    axes.set_axisbelow(True)
    if before is not None:
        figure.legend(loc="outside upper right", ncols=2, frameon=False, fontsize=9)
    return as_png(figure)


def step_curves(panels: Sequence[Panel], ticks: Sequence[str], *, title: str, xlabel: str = "after step") -> bytes:
    """Plot the mean IoU over steps in panels with the same scale.

    Means are joined by lines and carry error bars of one standard deviation; `levels` are dashed, with a band of one
    standard deviation.

    Args:
        panels: At least one panel. A name has the same colour in all panels.
        ticks: Names of the steps.
        title: Title of the figure.
        xlabel: Label of the x axis.
    """
    width = max(3.6, 0.5 * len(ticks) + 1.5)
    figure = make_figure((max(6.0, width * len(panels)) + 0.4, 4.6))
    names = list(dict.fromkeys(c.name for panel in panels for c in (*panel.curves, *panel.levels)))
    top = _top(panels)
    handles: dict[str, Artist] = {}
    for index, panel in enumerate(panels):
        axes = figure.add_subplot(1, len(panels), index + 1)
        for curve in panel.curves:
            handles[curve.name] = _draw_curve(axes, curve, names.index(curve.name), len(names))
        for level in panel.levels:
            handles[level.name] = _draw_level(axes, level, names.index(level.name))
        axes.set_title(panel.title, fontsize=10)
        axes.set_xticks(range(len(ticks)), [_label(tick) for tick in ticks], rotation=_turn(ticks))
        axes.set_xlim(-0.4, len(ticks) - 0.6)
        axes.set_ylim(0, top)
        axes.set_xlabel(xlabel)
        axes.grid(color="#E3E6E9", linewidth=0.8)
        axes.set_axisbelow(True)
        if index == 0:
            axes.set_ylabel("mean IoU, %")
    figure.suptitle(title.replace("$", r"\$"), fontsize=12)
    shown = [name for name in names if name in handles]
    figure.legend(
        [handles[name] for name in shown],
        [_label(name) for name in shown],
        loc="outside lower center",
        ncols=min(len(shown), 4 * len(panels)),
        frameon=False,
        fontsize=9,
    )
    return as_png(figure)


def _write_values(axes: Axes, shares: NDArray[np.float64]) -> None:
    """Write percentages into the cells, in a colour with enough contrast."""
    for (row, column), share in np.ndenumerate(shares):
        if not math.isnan(share):
            colour = "white" if share > 55 else GREY if share < 0.5 else DARK
            axes.text(column, row, f"{share:.0f}", ha="center", va="center", fontsize=8, color=colour)


def _draw_curve(axes: Axes, curve: Curve, index: int, of: int) -> Artist:
    """Draw the curves with a small horizontal offset, because methods often share their first step."""
    means = _percent(curve.means)
    x = np.arange(len(means)) + (index - (of - 1) / 2) * 0.03
    bars = axes.errorbar(
        x,
        means,
        yerr=np.nan_to_num(_percent(curve.deviations)) if len(curve.deviations) else None,
        color=COLOURS[index % len(COLOURS)],
        marker=MARKERS[index % len(MARKERS)],
        markersize=5,
        linewidth=1.6,
        elinewidth=1.2,
        capsize=3,
    )
    return bars.lines[0]


def _draw_level(axes: Axes, level: Curve, index: int) -> Artist:
    (mean,) = _percent(level.means)
    colour = COLOURS[index % len(COLOURS)]
    if len(level.deviations):
        deviation = float(np.nan_to_num(_percent(level.deviations)[0]))
        axes.axhspan(mean - deviation, mean + deviation, color=colour, alpha=0.1, linewidth=0)
    return axes.axhline(mean, color=colour, linestyle="--", linewidth=1.4)


def _top(panels: Sequence[Panel]) -> float:
    """Upper limit of the y axis in percent: the next multiple of ten above all values."""
    highest = 0.0
    for panel in panels:
        for curve in (*panel.curves, *panel.levels):
            spread = _percent(curve.deviations) if len(curve.deviations) else np.zeros(len(curve.means))
            highest = max(highest, *np.nan_to_num(_percent(curve.means) + np.nan_to_num(spread)), 0.0)
    return min(10.0 * (math.floor(highest / 10) + 1), 103.0)


def _turn(ticks: Sequence[str]) -> int:
    """Rotation of long tick labels in degrees, so that they do not overlap."""
    return 30 if max(map(len, ticks)) > 6 else 0


def _percent(shares: Sequence[float | None]) -> NDArray[np.float64]:
    return np.array([math.nan if share is None else 100 * share for share in shares], np.float64)


def _label(name: str) -> str:
    """Shorten a name for an axis, and escape dollar signs, which would start a formula."""
    short = name if len(name) <= LONGEST_LABEL else name[: LONGEST_LABEL - 1] + "…"
    return short.replace("$", r"\$")


def make_figure(size: tuple[float, float]) -> Figure:
    """An empty figure of this width and height in inches."""
    return Figure(figsize=size, dpi=DPI, layout="constrained")


def as_png(figure: Figure) -> bytes:
    """The figure as PNG bytes; the same figure gives the same bytes."""
    buffer = io.BytesIO()
    with warnings.catch_warnings():
        # Characters that the bundled font lacks become boxes; pages also contain the names as text.
        warnings.filterwarnings("ignore", message="Glyph .* missing from font")
        figure.savefig(buffer, format="png", metadata={"Software": None})
    return buffer.getvalue()
