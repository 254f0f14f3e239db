"""Runs cells side by side in a few processes; cells that share a step 0 wait for the one that trains it."""

from __future__ import annotations

import json
import multiprocessing
import traceback
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from pathlib import Path
from typing import Any

from tools.results.cells import Cell

Results = Mapping[str, dict[str, Any]]
"""Cells by id, as `cell.json` has them."""


def result_of(cell: Cell, runs: Path, published: Results | None = None) -> dict[str, Any] | None:
    """What a finished cell wrote; None for any other, or where what is wanted now was not measured then.

    Args:
        cell: Which one.
        runs: One folder a cell.
        published: Cells that pages tell of, for those that have no folder here.
    """
    path = runs / cell.id / "cell.json"
    document = json.loads(path.read_text(encoding="utf-8")) if path.is_file() else (published or {}).get(cell.id)
    return None if document is None or (cell.held_out and "held_out" not in document) else document


def run_cells(
    cells: Sequence[Cell], runs: Path, workers: int, say: Callable[[str], None], published: Results | None = None
) -> list[Cell]:
    """Run what is not finished; returns the cells that failed, whose logs say why.

    Args:
        cells: In order of importance.
        runs: One folder a cell.
        workers: Processes at a time, one thread each.
        say: Told about every cell.
        published: Cells that need not run.
    """
    waiting = list({cell.id: cell for cell in cells if result_of(cell, runs, published) is None}.values())
    first = {cell.first_step: runs / cell.id for cell in cells if (runs / cell.id / "step0.safetensors").is_file()}
    total, failed = len(waiting), []
    running: dict[Future[bool], Cell] = {}
    say(f"{total} cells to run, {len({c.id for c in cells}) - total} finished before")
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(workers, context, initializer=_one_thread) as pool:
        while waiting or running:
            while len(running) < workers and (cell := _next(waiting, first, list(running.values()))) is not None:
                waiting.remove(cell)
                say(f"{cell.table}: {cell.row}, {cell.replica} ({total - len(waiting)}/{total}) in {cell.id}")
                running[pool.submit(_run, cell, runs, first.get(cell.first_step))] = cell
            done, _ = wait(running, return_when=FIRST_COMPLETED)
            for future in done:
                cell = running.pop(future)
                if not future.result():
                    say(f"failed: {cell.table}, {cell.row}, {cell.replica}; see {runs / cell.id}.log")
                    failed.append(cell)
                else:
                    first.setdefault(cell.first_step, runs / cell.id)
    return failed


def _next(waiting: Sequence[Cell], first: dict[str, Path], running: Sequence[Cell]) -> Cell | None:
    """The first cell whose step 0 is there already, or that nobody is training at the moment."""
    busy = {cell.first_step for cell in running}
    return next((cell for cell in waiting if cell.first_step in first or cell.first_step not in busy), None)


def _one_thread() -> None:
    import torch

    torch.set_num_threads(1)


def _run(cell: Cell, runs: Path, step0: Path | None) -> bool:
    """Whether the cell came to its end; if not, its log has the traceback."""
    from tools.results.cell import run_cell

    folder = runs / cell.id
    try:
        run_cell(cell.task, folder, step0=step0 if step0 != folder else None, held_out=cell.held_out)
    except Exception:
        (runs / f"{cell.id}.log").write_text(traceback.format_exc(), encoding="utf-8")
        return False
    return True
