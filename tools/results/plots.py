"""Plots of the results."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from rcil.report.plots import COLOURS, DARK, as_png, make_figure


def ablation_bars(title: str, rows: Mapping[str, Mapping[str, Any]]) -> bytes:
    """One bar per row with its standard deviation and its value."""
    figure = make_figure((7.5, 0.36 * len(rows) + 1.3))
    axes = figure.add_subplot()
    means = np.array([100 * row["mean"] for row in rows.values()])
    deviations = np.array([100 * row["sd"] for row in rows.values()])
    positions = np.arange(len(rows))
    axes.barh(positions, means, xerr=deviations, height=0.65, color=COLOURS[0], ecolor=DARK, capsize=3)
    for position, mean, deviation in zip(positions, means, deviations, strict=True):
        axes.text(mean + deviation + 0.4, float(position), f"{mean:.1f}", va="center", fontsize=8, color=DARK)
    axes.set_yticks(positions, list(rows), fontsize=9)
    axes.invert_yaxis()
    axes.set_xlim(0, max((means + deviations).max() * 1.12, 1))
    axes.set_xlabel("mean IoU of all classes after the last step, %")
    axes.set_title(title, fontsize=11)
    axes.grid(axis="x", color="#E3E6E9", linewidth=0.8)
    axes.set_axisbelow(True)
    return as_png(figure)


def heat_map(title: str, cells: Mapping[str, float]) -> bytes:
    """Draw rows named `a, b` as a grid of a by b."""
    pairs = [tuple(part.strip() for part in name.split(",")) for name in cells]
    left, below = (list(dict.fromkeys(pair[side] for pair in pairs)) for side in (0, 1))
    values = np.full((len(left), len(below)), np.nan)
    for (a, b), value in zip(pairs, cells.values(), strict=True):
        values[left.index(a), below.index(b)] = 100 * value
    figure = make_figure((1.3 * len(below) + 2.5, 0.8 * len(left) + 1.6))
    axes = figure.add_subplot()
    image = axes.imshow(values, cmap="viridis", aspect="auto")
    for (row, column), value in np.ndenumerate(values):
        if not np.isnan(value):
            light = value < np.nanmean(values)
            axes.text(column, row, f"{value:.1f}", ha="center", va="center", color="white" if light else "black")
    axes.set_xticks(range(len(below)), below)
    axes.set_yticks(range(len(left)), left)
    axes.set_title(title, fontsize=11)
    figure.colorbar(image, ax=axes).set_label("mean IoU of all classes, %")
    return as_png(figure)
