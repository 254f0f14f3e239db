"""Compare both methods without and with RC over seeds. Every cell is a separate run that can be continued."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from statistics import fmean
from typing import Any, get_args

import numpy as np

from rcil.classify.methods import make_classify_method
from rcil.classify.run import run_classify
from rcil.classify.task import ClassifyTask, MethodName, MethodSection
from rcil.core.documents import write_json
from rcil.core.files import write_file
from rcil.core.log import Notify
from rcil.report.pages import as_text
from rcil.report.plots import COLOURS, MARKERS, as_png, make_figure
from rcil.training.compare import summarise
from rcil.training.loop import Listener


def compare_classify(
    task: ClassifyTask,
    seeds: int,
    output: Path,
    *,
    listen: Listener = lambda event: None,
    say: Notify = lambda text: None,
) -> dict[str, Any]:
    """Run {EEIL, PODNet} x {without, with RC} x seeds; returns the content of `compare.json`.

    The same call continues an interrupted comparison and keeps finished steps. `method.options` of the task apply to
    its own method, `method.others` to the other one, both without and with RC.

    Args:
        task: The task; its seed is the first seed.
        seeds: Number of runs per cell.
        output: Folder with one run per cell, `compare.json`, `compare.md` and `curves.png`.
        listen: Called after every iteration.
        say: Receives a line about every cell and step.
    """
    options = {**task.method.others, task.method.name: task.method.options}
    for name, chosen in options.items():
        make_classify_method(name, chosen)  # raises before the long work
    rows: dict[str, Any] = {}
    sizes: list[int] = []
    for name in get_args(MethodName):
        runs: dict[bool, list[dict[str, Any]]] = {False: [], True: []}
        for seed in range(task.seed, task.seed + seeds):
            for rc, finished in runs.items():
                cell = f"{name}-rc" if rc else name
                say(f"{cell}, seed {seed}")
                section = MethodSection(name=name, rc=rc, options=options.get(name, {}))
                run = task.model_copy(update={"seed": seed, "method": section})
                finished.append(run_classify(run, output / cell / f"seed{seed}", listen=listen, say=say))
        rows[name] = row_of(runs[False], runs[True])
        sizes = [len(step["classes"]) for step in runs[False][0]["steps"]]
    document = {"task": task.name, "seeds": seeds, "classes": sizes, "rows": rows}
    write_json(output / "compare.json", document)
    write_file(output / "compare.md", as_markdown(document))
    write_file(output / "curves.png", accuracy_curves(document))
    return document


def row_of(plain: Sequence[dict[str, Any]], rc: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Summarise one method over seeds: average incremental accuracy, gain of RC, accuracy after each step."""
    averages = [[run["average_incremental_accuracy"] for run in runs] for runs in (plain, rc)]
    gains = [after - before for before, after in zip(*averages, strict=True)]
    return {
        "plain": {**vars(summarise(averages[0])), "values": averages[0], "curve": _curve(plain)},
        "rc": {**vars(summarise(averages[1])), "values": averages[1], "curve": _curve(rc)},
        "gain": {**vars(summarise(gains)), "values": gains, "by_step": _gain_by_step(plain, rc)},
    }


def _curve(runs: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Mean and standard deviation after each step for all, old and new classes; None for old ones in step 0."""
    after_steps = zip(*(run["steps"] for run in runs), strict=True)
    return [
        {group: _cell([s["accuracy"][group] for s in steps]) for group in ("all", "old", "new")}
        for steps in after_steps
    ]


def _cell(values: Sequence[float | None]) -> dict[str, Any] | None:
    known = [value for value in values if value is not None]
    return vars(summarise(known)) if known else None


def _gain_by_step(plain: Sequence[dict[str, Any]], rc: Sequence[dict[str, Any]]) -> list[float]:
    """Mean gain over seeds after each step, on all classes so far."""
    paired = [
        [a["accuracy"]["all"] - b["accuracy"]["all"] for a, b in zip(one["steps"], other["steps"], strict=True)]
        for one, other in zip(rc, plain, strict=True)
    ]
    return [fmean(values) for values in zip(*paired, strict=True)]


TITLES = {"eeil": "EEIL", "podnet": "PODNet"}


def as_markdown(document: dict[str, Any]) -> str:
    """The table as Markdown."""
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
    """Plot the accuracy over the number of classes: solid with RC, dashed without; bands are one standard deviation."""
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
