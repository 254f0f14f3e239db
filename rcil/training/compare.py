"""Compare methods on a task, as in the tables of the paper. Every cell is a separate run that can be resumed."""

from __future__ import annotations

import json
import math
import statistics
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rcil.core.documents import write_json
from rcil.core.errors import ConfigError
from rcil.core.files import check_writable, write_file
from rcil.core.log import DryRun, Notify
from rcil.methods import Method, check_names, make_method
from rcil.report.pages import as_text, paper_column, write_comparison
from rcil.tasks.plan import make_plan
from rcil.tasks.task import Task, TaskMethodSection
from rcil.training.estimate import duration, estimate
from rcil.training.loop import Listener
from rcil.training.memory import GIB
from rcil.training.run import run_task
from rcil.training.side_by_side import Run, run_side_by_side

COLUMNS = ("first", "later", "all")
"""Classes of step 0, of all later steps, and of both, as in the tables of the paper."""


@dataclass(frozen=True)
class Cell:
    """Mean and standard deviation of a mean IoU over seeds; NaN without values."""

    mean: float
    sd: float
    seeds: int


def compare(
    task: Task,
    methods: Sequence[str],
    seeds: int,
    output: Path,
    *,
    jobs: int = 1,
    listen: Listener = lambda event: None,
    announce: Notify = lambda text: None,
) -> dict[str, Any]:
    """Run every method with every seed and tabulate all steps; returns what `compare.json` holds.

    The same call continues an interrupted comparison and keeps finished cells. Methods that train step 0 in the same
    way share it. `method.options` of the task apply to its own method, `method.others` to the other methods, and
    `method.lr` to the methods that it names.

    Args:
        task: The task; its seed is the first seed.
        methods: Names of the methods, one row each.
        seeds: Number of runs per method.
        output: Folder with one run per cell, `compare.json`, `compare.md`, `compare.html` and `curves.png`.
        jobs: Number of runs side by side, each in a process of its own.
        listen: Called after every iteration, if there is a single job.
        announce: Called before every cell.
    """
    check_methods(methods, task)
    options = options_of(task)
    made = {name: make_method(name, **options.get(name, {})) for name in (*methods, *options)}
    steps = make_plan(task).steps
    first = set(steps[0].names)
    cells = {
        (name, seed): _run(task, made[name], name, seed, output) for name in methods for seed in seeds_of(task, seeds)
    }
    if jobs > 1:
        run_side_by_side(list(cells.values()), jobs, announce)
    step0: dict[Hashable, Path] = {}
    rows: dict[str, dict[str, Any]] = {}
    for name in methods:
        runs = []
        for seed in seeds_of(task, seeds):
            cell = cells[name, seed]
            if jobs == 1:
                announce(cell.title)
            leader = step0.setdefault(cell.group, cell.folder)
            shared = None if leader == cell.folder else leader
            runs.append(run_task(cell.task, cell.folder, resume=True, step0_of=shared, listen=listen))
        rows[name] = {**over_seeds([step_means(run["steps"][-1], first) for run in runs]), "curve": curve(runs, first)}
        if "paper" in runs[0]:
            rows[name]["paper"] = runs[0]["paper"]
        document = {
            "task": task.name,
            "seeds": seeds,
            "steps": [list(step.teaches) for step in steps],
            "rows": _without_nan(rows),
        }
        write_json(output / "compare.json", document)
        write_file(output / "compare.md", as_markdown(document))
        write_comparison(output, document)
    return document


def seeds_of(task: Task, count: int) -> range:
    """Consecutive seeds, from that of the task."""
    return range(task.seed, task.seed + count)


def _run(task: Task, method: Method, name: str, seed: int, output: Path) -> Run:
    """The run of one cell. The group holds all that determines the training of step 0."""
    cell = cell_of(task, name, seed)
    group = method.first_step, method.rc, seed, cell.own_training.lr[0]
    return Run(f"{name}, seed {seed}", cell, output / name / f"seed{seed}", group)


def check_methods(methods: Sequence[str], task: Task) -> None:
    """Raise if no method is named, or if the task has learning rates of an unknown one."""
    check_names(task.method.lr)
    if not methods:
        raise ConfigError("no method is given", "Give comma-separated names, for example mib,rcil.")


def options_of(task: Task) -> dict[str, dict[str, Any]]:
    """Options by method name."""
    return {**task.method.others, task.method.name: task.method.options}


def cell_of(task: Task, method: str, seed: int) -> Task:
    """The task of one cell."""
    lr = {name: rates for name, rates in task.method.lr.items() if name == method}
    section = TaskMethodSection(name=method, options=options_of(task).get(method, {}), lr=lr)
    return task.model_copy(update={"seed": seed, "method": section})


def curve(runs: Sequence[dict[str, Any]], first: set[str]) -> list[dict[str, Any]]:
    """Mean IoU of the same groups of classes after every step, over runs of the same task."""
    after_steps = zip(*(run["steps"] for run in runs), strict=True)
    return [over_seeds([step_means(step, first) for step in steps]) for steps in after_steps]


def step_means(step: dict[str, Any], first: set[str]) -> dict[str, float]:
    """Mean IoU of the groups of classes after one step of `results.json`; NaN for a group without any."""
    iou = {c["name"]: c["iou"] for c in step["classes"] if c["iou"] is not None}
    groups = {
        "first": [v for n, v in iou.items() if n in first],
        "later": [v for n, v in iou.items() if n not in first],
    }
    groups["all"] = list(iou.values())
    return {name: statistics.fmean(values) if values else math.nan for name, values in groups.items()}


def over_seeds(runs: Sequence[dict[str, float]]) -> dict[str, Any]:
    """A cell for each group of classes."""
    return {column: vars(summarise([run[column] for run in runs])) for column in COLUMNS}


def summarise(values: Sequence[float]) -> Cell:
    """Mean and sample standard deviation; the deviation of a single run is 0."""
    known = [value for value in values if not math.isnan(value)]
    if not known:
        return Cell(math.nan, math.nan, 0)
    return Cell(statistics.fmean(known), statistics.stdev(known) if len(known) > 1 else 0.0, len(known))


def as_markdown(document: dict[str, Any]) -> str:
    """The table as Markdown."""
    lines = [f"mIoU in % after the last step of {document['task']}, mean ± sd over {document['seeds']} seeds", ""]
    rows: list[tuple[str, ...]] = [("method", "step 0", "later", "all"), ("---",) * 4]
    rows += [(name, *(as_text(row[column]) for column in COLUMNS)) for name, row in document["rows"].items()]
    if published := paper_column(document):
        rows = [(*row, cell) for row, cell in zip(rows, ("paper, all", "---", *published), strict=True)]
    return "\n".join([*lines, *(f"| {' | '.join(row)} |" for row in rows)]) + "\n"


def _without_nan(rows: dict[str, dict[str, Any]]) -> dict[str, Any]:
    """Replace NaN, which is not JSON, by None."""
    text = json.dumps(rows)
    result: dict[str, Any] = json.loads(text, parse_constant=lambda _: None)
    return result


def comparison_dry_run(task: Task, methods: Sequence[str], seeds: int, output: Path) -> DryRun:
    """Estimate a comparison; the sharing of step 0 is not taken into account."""
    check_methods(methods, task)
    check_writable(output)
    needs, images = {}, 0
    for name in methods:
        steps = estimate(cell_of(task, name, task.seed))
        images = max(images, *(step.images for step in steps))
        iterations = seeds * sum(step.iterations for step in steps)
        seconds = seeds * sum(step.seconds for step in steps)
        memory = max(step.memory for step in steps) / GIB
        needs[name] = f"{seeds} runs, {iterations} iterations, {memory:.1f} GiB, {duration(seconds)}"
    cells = {str(output / name / f"seed{task.seed + index}"): "" for name in methods for index in range(seeds)}
    table = {str(output / name): "" for name in ("compare.json", "compare.md", "compare.html", "curves.png")}
    return DryRun({str(task.data.root): f"{images} images in the largest step"}, {**cells, **table}, needs)
