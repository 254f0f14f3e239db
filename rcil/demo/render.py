"""What the demo shows on the terminal."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from rich import box
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table

Bars = Callable[[str, int], Callable[[int, float], None]]


@contextlib.contextmanager
def progress_bars() -> Iterator[Bars]:
    """Bars with loss and remaining time on a terminal, a line every twenty iterations elsewhere."""
    columns = (
        TextColumn("{task.description:>20}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("loss {task.fields[loss]:.3f}"),
        TimeRemainingColumn(),
    )
    with Progress(*columns, disable=not sys.stdout.isatty()) as progress:

        def start(title: str, total: int) -> Callable[[int, float], None]:
            task = progress.add_task(title, total=total, loss=float("nan"))

            def step(done: int, loss: float) -> None:
                progress.update(task, completed=done, loss=loss)
                if not sys.stdout.isatty() and done % 20 == 0:
                    Console().print(f"{title}: {done}/{total}, loss {loss:.3f}")

            return step

        yield start


def results_table(document: dict[str, Any], output: Path) -> None:
    """IoU of every class after each training, then where to look."""
    names = list(document["iou"]["step 1, rcil"])
    table = Table(title="IoU on scenes of their own, %", box=box.SIMPLE, title_justify="left")
    for column in ("", *names):
        table.add_column(column, justify="right" if column else "left")
    for title, values in document["iou"].items():
        table.add_row(title, *(f"{100 * values[name]:.1f}" if name in values else "-" for name in names))
    console = Console()
    console.print(table)
    fold = document["fold"]
    console.print(
        f"deployed: {fold['rc_blocks']} RC blocks folded, error {fold['relative_error']:.0e} of the logit range, "
        f"{fold['parameters']:,} parameters and {fold['macs'] / 1e9:.2f} G MACs, exactly those of a plain network"
    )
    console.print(
        f"look at {output / 'demo.jpg'} and {output / 'scene_overlay.png'}; numbers in {output / 'report.json'}"
    )
