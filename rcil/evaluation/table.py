"""How an evaluation is shown on a terminal."""

from __future__ import annotations

import math
from collections.abc import Sequence

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from rcil.evaluation.evaluate import EvalReport
from rcil.report.models import Evaluated, headings, histories


def print_report(report: EvalReport) -> None:
    """IoU per class, then the means."""
    table = Table(title=f"IoU on {report.images} images, %", box=box.SIMPLE, title_justify="left")
    table.add_column("class")
    for column in ("step", "IoU", "pixels"):
        table.add_column(column, justify="right")
    for c in report.classes:
        table.add_row(Text(c.name), str(c.step), percent(c.iou), f"{c.pixels:,}")
    table.add_section()
    for name in ("old", "new", "all"):
        table.add_row(f"mean, {name}", "", percent(getattr(report, name)), "")
    console = Console()
    console.print(table)
    if report.unknown:
        unknown = ", ".join(report.unknown)
        console.print(Text(f"counted as background, unknown to the model: {unknown}"), soft_wrap=True)


def print_models(models: Sequence[Evaluated]) -> None:
    """The report of a single model; of several IoU per class, one column a model, then the means."""
    if len(models) == 1:
        print_report(models[0].report)
        return
    table = Table(title=f"IoU on {models[-1].report.images} images, %", box=box.SIMPLE, title_justify="left")
    table.add_column("class")
    for heading in headings(models):
        table.add_column(Text(heading), justify="right")
    for c in histories(models):
        table.add_row(Text(c.name), *map(percent, c.iou))
    table.add_section()
    for name in ("old", "new", "all"):
        table.add_row(f"mean, {name}", *(percent(getattr(m.report, name)) for m in models))
    Console().print(table)


def percent(value: float) -> str:
    """With one decimal; a dash for NaN."""
    return "-" if math.isnan(value) else f"{100 * value:.1f}"
