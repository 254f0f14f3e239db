"""Changes over time as a picture."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from rcil_serve.diff.findings import Findings
from rcil_serve.diff.kinds import KINDS, SAME


def timeline_plot(found: Findings) -> bytes:
    """A PNG: shares of all kinds of change, of which there must be one, stacked over the seconds of the source."""
    from rcil.report.plots import as_png, make_figure

    times, shares = steps(found.times, found.curves, found.step_seconds)
    shown = [row for row in range(SAME + 1, len(KINDS)) if found.by_kind[row]]
    figure = make_figure((9.0, 3.4))
    axes = figure.add_subplot()
    axes.stackplot(
        times,
        100 * shares[:, shown].T,
        colors=[KINDS[row].hex for row in shown],
        labels=[KINDS[row].name for row in shown],
        step="post",
        linewidth=0,
    )
    axes.set(xlabel="seconds of the source", ylabel="share of the pixels, %", ylim=(0, None))
    axes.set_xlim(times[0], times[-1])
    axes.grid(color="#E3E6E9", linewidth=0.8)
    axes.set_axisbelow(True)
    figure.legend(loc="outside lower center", ncols=len(shown), frameon=False, fontsize=9)
    return as_png(figure)


def steps(
    times: NDArray[np.float64], shares: NDArray[np.float64], seconds: float
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Corners of a curve that is level within each step of time, and zero where the source has no frames.

    Args:
        times: Begin of each step that has frames [steps].
        shares: In each of them [steps, kinds].
        seconds: Length of a step.
    """
    ends = times + seconds
    last = np.append(~np.isclose(ends[:-1], times[1:]), True)
    corners = np.concatenate([times, ends[last]])
    values = np.concatenate([shares, np.zeros((int(last.sum()), shares.shape[1]))])
    order = np.argsort(corners, kind="stable")
    return corners[order], values[order]
