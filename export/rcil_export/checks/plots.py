"""Pictures for the report: where two artefacts differ, how large errors are, how long runs take."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from rcil.report.plots import COLOURS, as_png, make_figure
from rcil_export.checks.outputs.report import WorstImage

FLOOR = 1e-9
"""Errors below this are drawn as none."""


def error_map(worst: WorstImage) -> bytes:
    """The image, the error of its logits on a logarithmic scale, and the pixels that changed their class."""
    panels = 2 + (worst.errors is not None)
    figure = make_figure((4.2 * panels, 3.4))
    axes = figure.subplots(1, panels)
    axes[0].imshow(worst.pixels)
    axes[0].set_title(worst.name, fontsize=9)
    if worst.errors is not None:
        drawn = axes[1].imshow(np.log10(np.maximum(worst.errors, FLOOR)), cmap="inferno", vmin=-8, vmax=-1)
        axes[1].set_title("largest error, share of the logit range", fontsize=9)
        bar = figure.colorbar(drawn, ax=axes[1], shrink=0.8, ticks=[-8, -6, -4, -2])
        bar.ax.set_yticklabels([f"1e{tick}" for tick in (-8, -6, -4, -2)])
    axes[-1].imshow(worst.differs, cmap="Reds", vmin=0, vmax=1)
    axes[-1].set_title("another class" if worst.differs.any() else "another class: nowhere", fontsize=9)
    for one in axes:
        one.set_axis_off()
    return as_png(figure)


def error_histogram(edges: Sequence[float], counts: Sequence[int], limit: float | None) -> bytes:
    """How many logits have which error; the dashed line is what is allowed."""
    figure = make_figure((6, 2.6))
    axes = figure.subplots()
    upper = np.maximum(np.asarray(edges, float), FLOOR)
    finite = np.isfinite(upper)
    axes.bar(upper[finite], np.asarray(counts)[finite], width=0.4 * upper[finite], color=COLOURS[0])
    axes.set_xscale("log")
    axes.set_yscale("log")
    if limit is not None:
        axes.axvline(limit, color=COLOURS[1], linestyle="--", label="allowed")
        axes.legend(frameon=False, loc="upper right")
    axes.set_xlabel("error, share of the logit range")
    axes.set_ylabel("logits")
    return as_png(figure)


def latency_histogram(milliseconds: Mapping[str, Sequence[float]]) -> bytes:
    """Times of interleaved runs, one colour a network; the slowest hundredth is left out of the picture."""
    figure = make_figure((6, 2.6))
    axes = figure.subplots()
    everything = np.concatenate([np.asarray(times) for times in milliseconds.values()])
    bins = np.linspace(everything.min(), max(np.quantile(everything, 0.99), everything.min() * 1.01), 40).tolist()
    for index, (name, times) in enumerate(milliseconds.items()):
        axes.hist(times, bins, alpha=0.6, label=f"{name}, median {np.median(times):.1f} ms", color=COLOURS[index])
    axes.set_xlabel("one image, ms")
    axes.set_ylabel("runs")
    axes.legend(frameon=False, loc="upper right")
    return as_png(figure)
