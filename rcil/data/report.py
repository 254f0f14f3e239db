"""How a check is shown on a terminal."""

from __future__ import annotations

from pathlib import Path

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from rcil.data.check import CheckReport

SHOWN = 40


def print_report(report: CheckReport, sheet: Path | None) -> None:
    """Classes, problems and a closing line."""
    console = Console(markup=False)
    table = Table(title=Text(f"{report.root}"), box=box.SIMPLE, title_justify="left")
    for column, side in (("id", "right"), ("class", "left"), ("pixels", "right"), ("images", "right")):
        table.add_column(column, justify="right" if side == "right" else "left")
    for count in report.counts:
        table.add_row(str(count.id), Text(count.name), f"{count.pixels:,}", str(count.images))
    console.print(table)
    for problem in report.problems[:SHOWN]:
        style = "red" if problem.severity == "error" else "yellow"
        console.print(
            Text(f"{problem.severity}: ", style=style) + Text(f"{problem.place}: {problem.message}"), soft_wrap=True
        )
    if len(report.problems) > SHOWN:
        console.print(f"... and {len(report.problems) - SHOWN} more; --json lists all")
    errors = sum(p.severity == "error" for p in report.problems)
    images = ", ".join(f"{count} {split}" for split, count in report.images.items()) or "none"
    verdict = "fit for training" if report.ok else "not fit for training"
    console.print(f"images: {images}; {errors} errors, {len(report.problems) - errors} warnings: {verdict}")
    if sheet is not None:
        console.print(f"look at {sheet}", soft_wrap=True)
