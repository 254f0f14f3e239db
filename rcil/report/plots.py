"""Plots as PNG bytes; the same input gives the same bytes. Nothing here imports torch or pyplot."""

from __future__ import annotations

import io
import math
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from matplotlib import colormaps
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator
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


@dataclass(frozen=True)
class Estimate:
    """A measured value with its interval, for `interval_plot`."""

    name: str
    value: float
    interval: tuple[float, float] | None
    tone: str
    """Colour of the dot and the line."""


def interval_plot(groups: Sequence[tuple[str, str, float | None, Sequence[Estimate]]]) -> bytes:
    """Plot values with their intervals, one class per row, and the limits that they are judged by.

    Args:
        groups: Panels from top to bottom: title, label of the axis, limit (None: none), and the values.
    """
    shown = [group for group in groups if group[3]]
    heights = [len(estimates) for *_, estimates in shown]
    figure = make_figure((8.0, 0.26 * sum(heights) + 0.95 * len(shown)))
    panels = figure.subplots(len(shown), 1, squeeze=False, height_ratios=[n + 0.6 for n in heights])[:, 0]
    for axes, (title, label, limit, estimates) in zip(panels, shown, strict=True):
        for row, estimate in enumerate(estimates):
            low, high = estimate.interval or (estimate.value, estimate.value)
            axes.plot([low, high], [row, row], color=estimate.tone, linewidth=3, alpha=0.45, solid_capstyle="round")
            axes.plot([estimate.value], [row], "o", color=estimate.tone, markersize=5)
        if limit is not None:
            axes.axvline(limit, color=DARK, linewidth=1.2, linestyle="--")
            axes.text(limit, -0.75, f"limit {limit:g}", ha="center", va="bottom", fontsize=8, color=DARK)
        axes.set_yticks(range(len(estimates)), [_label(estimate.name) for estimate in estimates], fontsize=9)
        axes.set_ylim(len(estimates) - 0.4, -0.6)
        axes.set_xlabel(label, fontsize=9)
        axes.set_xlim(*_span(estimates, limit))
        axes.set_title(title, fontsize=10, loc="left")
        axes.grid(axis="x", color="#E3E6E9", linewidth=0.8)
        axes.set_axisbelow(True)
    return as_png(figure)


def _span(estimates: Sequence[Estimate], limit: float | None) -> tuple[float, float]:
    """Limits of an axis that shows zero, the limit and all intervals, with a margin."""
    values = [0.0, *([] if limit is None else [limit])]
    for estimate in estimates:
        values += [estimate.value, *(estimate.interval or ())]
    margin = 0.05 * (max(values) - min(values)) or 1.0
    return min(values) - margin, max(values) + margin


def training_curves(rows: Sequence[Mapping[str, float]]) -> bytes:
    """Plot the loss terms of every iteration and the mean IoU of the held-out images.

    Args:
        rows: Rows of the log: `epoch`, `iteration`, `lr` and either loss terms or `held_out_miou`.
    """
    per_epoch = max((row["iteration"] for row in rows), default=1.0) or 1.0
    figure = make_figure((9.6, 3.4))
    losses, held_out = figure.subplots(1, 2)
    names = dict.fromkeys(
        key for row in rows for key in row if key not in ("epoch", "iteration", "lr", "held_out_miou")
    )
    for index, name in enumerate(names):
        points = [(row["epoch"] + row["iteration"] / per_epoch, row[name]) for row in rows if name in row]
        x, y = zip(*points, strict=True)
        colour = COLOURS[index % len(COLOURS)]
        losses.plot(x, y, color=colour, linewidth=0.8, alpha=0.3)
        losses.plot(x, _smooth(y), color=colour, linewidth=1.8, label=name)
    losses.set_yscale("log", nonpositive="mask")
    losses.set_title("Loss terms", fontsize=10, loc="left")
    if names:
        losses.legend(frameon=False, fontsize=8, loc="upper center", bbox_to_anchor=(0.5, -0.17), ncols=5)
    seen = [(row["epoch"] + 1, 100 * row["held_out_miou"]) for row in rows if "held_out_miou" in row]
    if seen:
        x, y = zip(*seen, strict=True)
        held_out.plot(x, y, color=COLOURS[0], marker="o", markersize=4, linewidth=1.6)
        best = int(np.argmax(y))
        held_out.plot([x[best]], [y[best]], "o", color=COLOURS[1], markersize=8, label=f"best: {y[best]:.1f} %")
        held_out.legend(frameon=False, fontsize=8)
    held_out.set_title(
        "Mean IoU of the held-out images, %" if seen else "No held-out image was evaluated", fontsize=10, loc="left"
    )
    for axes in (losses, held_out):
        axes.set_xlabel("epoch", loc="right")
        axes.xaxis.set_major_locator(MaxNLocator("auto", integer=True))
        axes.grid(color="#E3E6E9", linewidth=0.8)
        axes.set_axisbelow(True)
    return as_png(figure)


def _smooth(values: Sequence[float]) -> NDArray[np.float64]:
    """A centred moving average over about a twentieth of the values."""
    width = max(1, len(values) // 20)
    padded = np.pad(np.asarray(values, np.float64), (width // 2, width - 1 - width // 2), mode="edge")
    return np.convolve(padded, np.full(width, 1 / width), mode="valid")


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
