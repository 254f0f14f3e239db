"""Runs cells in several processes; cells that share a step 0 wait for the one that trains it."""

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
"""Contents of `cell.json` by cell id."""


def result_of(cell: Cell, runs: Path, published: Results | None = None) -> dict[str, Any] | None:
    """Result of a finished cell; None if it is unfinished, or if a required measurement is missing.

    Args:
        cell: The cell.
        runs: Folder with one folder per cell.
        published: Cells on the pages, for those without a folder.
    """
    path = runs / cell.id / "cell.json"
    document = json.loads(path.read_text(encoding="utf-8")) if path.is_file() else (published or {}).get(cell.id)
    return None if document is None or (cell.held_out and "held_out" not in document) else document


def run_cells(
    cells: Sequence[Cell],
    runs: Path,
    workers: int,
    say: Callable[[str], None],
    published: Results | None = None,
    known: Sequence[Cell] = (),
) -> list[Cell]:
    """Run the unfinished cells; return those that failed. Their logs contain the tracebacks.

    Args:
        cells: The cells, most important first.
        runs: Folder with one folder per cell.
        workers: Number of processes, with one thread each.
        say: Called with one line per cell.
        published: Cells that are not run again.
        known: Further cells whose step 0 may be reused.
    """
    waiting = list({cell.id: cell for cell in cells if result_of(cell, runs, published) is None}.values())
    first = {cell.first_step: runs / cell.id for cell in (*known, *cells) if _trained_first(cell, runs / cell.id)}
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
                elif _trained_first(cell, runs / cell.id):
                    first.setdefault(cell.first_step, runs / cell.id)
    return failed


def _trained_first(cell: Cell, folder: Path) -> bool:
    """Whether a folder holds a step 0 that was trained there, and not only finished by another method."""
    kept = folder / "step0" / f"{cell.task.training.keep}.safetensors"
    return (folder / "step0.safetensors").is_file() and kept.is_file()


def _next(waiting: Sequence[Cell], first: dict[str, Path], running: Sequence[Cell]) -> Cell | None:
    """Return the first cell whose step 0 exists, or whose step 0 is not being trained."""
    busy = {cell.first_step for cell in running}
    return next((cell for cell in waiting if cell.first_step in first or cell.first_step not in busy), None)


def _one_thread() -> None:
    import torch

    torch.set_num_threads(1)


def _run(cell: Cell, runs: Path, step0: Path | None) -> bool:
    """Run a cell; return whether it finished. Otherwise its log contains the traceback."""
    from tools.results.cell import run_cell

    folder = runs / cell.id
    try:
        run_cell(cell.task, folder, step0=step0 if step0 != folder else None, held_out=cell.held_out)
    except Exception:
        (runs / f"{cell.id}.log").write_text(traceback.format_exc(), encoding="utf-8")
        return False
    return True
