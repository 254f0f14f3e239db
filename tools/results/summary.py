"""Summarises the finished cells of a table: means and standard deviations over replicas."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rcil.training.compare import over_seeds, step_means
from tools.results.cells import Cell, Table
from tools.results.runner import Results, result_of


def summarise_table(
    table: Table, cells: Sequence[Cell], runs: Path, published: Results | None = None
) -> dict[str, Any]:
    """Content of `NAME.json`: every finished cell, and each row over its replicas.

    Rows without a finished cell are omitted; `missing` counts the unfinished cells.
    """
    finished = {
        (cell.row, cell.replica): (cell, result) for cell in cells if (result := result_of(cell, runs, published))
    }
    rows: dict[str, Any] = {}
    for row in table.rows:
        mine = {replica: finished[row, replica] for replica in table.replicas if (row, replica) in finished}
        if mine:
            rows[row] = _row(mine)
    return {
        "table": table.name,
        "title": table.title,
        "command": f"python -m tools.results {table.name}",
        "seeds": len(table.replicas),
        "replicas": {name: dict(changes) for name, changes in table.replicas.items()},
        "steps": [[] for _ in range(max((len(row["curve"]) for row in rows.values()), default=0))],
        "missing": len(cells) - len(finished),
        "rows": rows,
    }


def published_cells(pages: Path) -> dict[str, dict[str, Any]]:
    """Cells of all pages in a folder and the folders in it by id, with rounded numbers."""
    found: dict[str, dict[str, Any]] = {}
    for path in sorted(pages.rglob("*.json")):
        document = json.loads(path.read_text(encoding="utf-8"))
        rows = document.get("rows", {}) if "table" in document else {}  # other pages are written by other commands
        for cell in (cell for row in rows.values() for cell in row["cells"].values()):
            held = {"held_out": cell["held_out"]} if "held_out" in cell else {}
            steps = [_as_step(classes) for classes in cell["steps"]]
            found[cell["id"]] = found.get(cell["id"], {}) | {"cpu_seconds": cell["cpu_seconds"], "steps": steps, **held}
    return found


def _row(mine: dict[str, tuple[Cell, dict[str, Any]]]) -> dict[str, Any]:
    """Options, cells, last step and curve of one row. Means are computed from the rounded values of the cells."""
    cells = {replica: _cell(cell, result) for replica, (cell, result) in mine.items()}
    first = [cell.first_classes for cell, _ in mine.values()]
    runs = [[_means(s, f) for s in cell["steps"]] for cell, f in zip(cells.values(), first, strict=True)]
    some = next(iter(mine.values()))[0].task.method
    row: dict[str, Any] = {
        "method": some.name,
        "options": some.options,
        **over_seeds([steps[-1] for steps in runs]),
        "curve": [over_seeds(list(steps)) for steps in zip(*runs, strict=True)],
        "cells": cells,
    }
    if all("held_out" in cell for cell in cells.values()):
        held = [_means(cell["held_out"], f) for cell, f in zip(cells.values(), first, strict=True)]
        row["held_out"] = over_seeds(held)
    return row


def _cell(cell: Cell, result: dict[str, Any]) -> dict[str, Any]:
    return {
        "id": cell.id,
        "seed": cell.task.seed,
        "cpu_seconds": result["cpu_seconds"],
        "steps": [{c["name"]: _rounded(c["iou"]) for c in step["classes"]} for step in result["steps"]],
        **({"held_out": {n: _rounded(v) for n, v in result["held_out"].items()}} if "held_out" in result else {}),
    }


def _means(classes: dict[str, float | None], first: frozenset[str]) -> dict[str, float]:
    """If the steps add domains, all classes exist from the first step."""
    return step_means(_as_step(classes), set(first) or set(classes))


def _as_step(classes: dict[str, float | None]) -> dict[str, Any]:
    return {"classes": [{"name": name, "iou": iou} for name, iou in classes.items()]}


def _rounded(value: float | None) -> float | None:
    return None if value is None else round(value, 4)
