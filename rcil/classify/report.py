"""The table and the picture of a comparison, from what `compare.json` holds. No torch here."""

from __future__ import annotations

from typing import Any

import numpy as np

from rcil.report.compare_report import as_text
from rcil.report.plots import COLOURS, MARKERS, as_png, make_figure

TITLES = {"eeil": "EEIL", "podnet": "PODNet"}


def as_markdown(document: dict[str, Any]) -> str:
    """The table as people paste it."""
    seeds = document["seeds"]
    over = f"mean ± sd over {seeds} seeds" if seeds > 1 else "one seed"
    lines = [
        f"Average incremental accuracy in % on {document['task']}, {over}",
        "",
        "| method | without RC | with RC | gain |",
        "|---|---|---|---|",
    ]
    for name, row in document["rows"].items():
        gain = f"{100 * row['gain']['mean']:+.1f} ± {100 * row['gain']['sd']:.1f}"
        lines.append(f"| {TITLES[name]} | {as_text(row['plain'])} | {as_text(row['rc'])} | {gain} |")
    return "\n".join(lines) + "\n"


def accuracy_curves(document: dict[str, Any]) -> bytes:
    """Accuracy on all classes so far by their number: RC solid, without dashed; bands are one standard deviation."""
    figure = make_figure((6.4, 4.4))
    axes = figure.add_subplot()
    counts = document["classes"]
    for index, (name, row) in enumerate(document["rows"].items()):
        for form, style, words in (("plain", "--", ""), ("rc", "-", " + RC")):
            cells = [step["all"] for step in row[form]["curve"]]
            mean, sd = (100 * np.array([cell[key] for cell in cells]) for key in ("mean", "sd"))
            colour = COLOURS[index]
            axes.plot(
                counts, mean, style, color=colour, marker=MARKERS[index], markersize=5, label=f"{TITLES[name]}{words}"
            )
            axes.fill_between(counts, mean - sd, np.minimum(mean + sd, 100), color=colour, alpha=0.12, linewidth=0)
    axes.set_xticks(counts)
    axes.set_xlabel("classes so far")
    axes.set_ylabel("accuracy, %")
    axes.set_title(document["task"].replace("$", r"\$"), fontsize=11)
    axes.grid(color="#E3E6E9", linewidth=0.8)
    axes.set_axisbelow(True)
    axes.legend(frameon=False, fontsize=9)
    return as_png(figure)
