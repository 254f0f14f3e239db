"""Runs cells side by side, each in a process of its own; cells that share a step 0 wait for the one that trains it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from pathlib import Path
from typing import Any

from rcil.console import write_json
from tools.results.cells import Cell

ONE_THREAD = {"OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}


def result_of(cell: Cell, runs: Path) -> dict[str, Any] | None:
    """What a finished cell wrote; None for any other, or where what is wanted now was not measured then."""
    path = runs / cell.id / "cell.json"
    if not path.is_file():
        return None
    document: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return None if cell.held_out and "held_out" not in document else document


def run_cells(cells: Sequence[Cell], runs: Path, workers: int, say: Callable[[str], None]) -> list[Cell]:
    """Run what is not finished; returns the cells that failed, whose logs say why.

    Args:
        cells: In order of importance.
        runs: One folder a cell.
        workers: Processes at a time, one thread each.
        say: Told about every cell.
    """
    waiting = list({cell.id: cell for cell in cells if result_of(cell, runs) is None}.values())
    first = {cell.first_step: runs / cell.id for cell in cells if (runs / cell.id / "step0.safetensors").is_file()}
    total, failed = len(waiting), []
    running: dict[Future[int], Cell] = {}
    processes: list[subprocess.Popen[bytes]] = []
    say(f"{total} cells to run, {len({c.id for c in cells}) - total} finished before")
    with ThreadPoolExecutor(workers) as pool:
        try:
            while waiting or running:
                while len(running) < workers and (cell := _next(waiting, first, list(running.values()))) is not None:
                    waiting.remove(cell)
                    say(f"{cell.table}: {cell.row}, {cell.replica} ({total - len(waiting)}/{total}) in {cell.id}")
                    running[pool.submit(_run, cell, runs, first.get(cell.first_step), processes)] = cell
                done, _ = wait(running, return_when=FIRST_COMPLETED)
                for future in done:
                    cell = running.pop(future)
                    if future.result() != 0:
                        say(f"failed: {cell.table}, {cell.row}, {cell.replica}; see {runs / cell.id}.log")
                        failed.append(cell)
                    else:
                        first.setdefault(cell.first_step, runs / cell.id)
        finally:
            for process in processes:
                process.terminate()
    return failed


def _next(waiting: Sequence[Cell], first: dict[str, Path], running: Sequence[Cell]) -> Cell | None:
    """The first cell whose step 0 is there already, or that nobody is training at the moment."""
    busy = {cell.first_step for cell in running}
    return next((cell for cell in waiting if cell.first_step in first or cell.first_step not in busy), None)


def _run(cell: Cell, runs: Path, step0: Path | None, processes: list[subprocess.Popen[bytes]]) -> int:
    """The exit code of the cell's process, which is added to `processes`."""
    folder = runs / cell.id
    task = runs / f"{cell.id}.json"
    write_json(task, cell.task.model_dump(mode="json"))
    command = [sys.executable, "-m", "tools.results.cell", str(folder), str(task)]
    command += ["--step0", str(step0)] if step0 is not None and step0 != folder else []
    command += ["--held-out"] if cell.held_out else []
    with (runs / f"{cell.id}.log").open("w") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log, env={**os.environ, **ONE_THREAD})
        processes.append(process)
        return process.wait()
