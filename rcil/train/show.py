"""What a run shows on the terminal."""

from __future__ import annotations

import contextlib
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from rich import box
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeRemainingColumn
from rich.table import Table

from rcil.train.loop import Event, Listener


@contextlib.contextmanager
def progress(*, quiet: bool = False) -> Iterator[Listener]:
    """A bar per step with loss terms, rate and remaining time on a terminal; a line per epoch elsewhere."""
    console = Console(stderr=quiet, quiet=quiet)
    terminal = sys.stdout.isatty() and not quiet
    columns = (
        TextColumn("step {task.fields[step]}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("{task.fields[note]}"),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=console, disable=not terminal) as bars:
        tasks: dict[int, TaskID] = {}
        started = time.perf_counter()

        def listen(event: Event) -> None:
            total, done = event.epochs * event.iterations, event.epoch * event.iterations + event.iteration
            if event.step not in tasks:
                tasks[event.step] = bars.add_task("", total=total, step=event.step, note="")
            if event.miou is not None:
                text = (
                    f"step {event.step}, epoch {event.epoch + 1}/{event.epochs}: held-out mIoU {100 * event.miou:.1f} %"
                )
                console.print(f"{text}, {time.perf_counter() - started:.0f} s")
            else:
                note = " ".join(f"{name} {value:.3f}" for name, value in event.terms.items())
                bars.update(tasks[event.step], completed=done, note=note)

        yield listen


def print_results(results: dict[str, Any], output: Path) -> None:
    """Mean IoU after each step on the test split."""
    table = Table(title=f"{results['task']}, {results['method']}: mIoU on the test split, %", box=box.SIMPLE)
    for column in ("step", "teaches", "old", "new", "all"):
        table.add_column(column, justify="left" if column == "teaches" else "right")
    for step in results["steps"]:
        values = (step["miou"][name] for name in ("old", "new", "all"))
        cells = ("-" if value is None else f"{100 * value:.1f}" for value in values)
        table.add_row(str(step["step"]), ", ".join(step["teaches"]), *cells)
    console = Console()
    console.print(table)
    console.print(f"checkpoints, logs and results.json in {output}", soft_wrap=True)
