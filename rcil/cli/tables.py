"""Tables that commands print on the terminal. Nothing here imports torch."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from rcil.data.check import CheckReport
from rcil.site.report import NEW_COLUMNS, OLD_COLUMNS, new_rows, old_rows, verdict

if TYPE_CHECKING:
    from rcil.evaluation.evaluate import EvalReport
    from rcil.report.models import Evaluated
    from rcil.site.preflight import Preflight

MAX_CHECK_PROBLEMS = 40


def print_check(report: CheckReport, sheet: Path | None) -> None:
    """Print the classes of a site folder, its problems and a verdict."""
    console = Console(markup=False)
    table = Table(title=Text(f"{report.root}"), box=box.SIMPLE, title_justify="left")
    for column, side in (("id", "right"), ("class", "left"), ("pixels", "right"), ("images", "right")):
        table.add_column(column, justify="right" if side == "right" else "left")
    for count in report.counts:
        table.add_row(str(count.id), Text(count.name), f"{count.pixels:,}", str(count.images))
    console.print(table)
    for problem in report.problems[:MAX_CHECK_PROBLEMS]:
        style = "red" if problem.severity == "error" else "yellow"
        console.print(
            Text(f"{problem.severity}: ", style=style) + Text(f"{problem.place}: {problem.message}"), soft_wrap=True
        )
    if len(report.problems) > MAX_CHECK_PROBLEMS:
        console.print(f"... and {len(report.problems) - MAX_CHECK_PROBLEMS} more; --json lists all")
    errors = sum(p.severity == "error" for p in report.problems)
    images = ", ".join(f"{count} {split}" for split, count in report.images.items()) or "none"
    verdict = "fit for training" if report.ok else "not fit for training"
    console.print(f"images: {images}; {errors} errors, {len(report.problems) - errors} warnings: {verdict}")
    if sheet is not None:
        console.print(f"look at {sheet}", soft_wrap=True)


def print_evaluation(report: EvalReport) -> None:
    """Print the IoU per class, then the means."""
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
    """Print the report of one model, or the IoU per class of several, one column per model."""
    if len(models) == 1:
        print_evaluation(models[0].report)
        return
    from rcil.report.models import headings, histories

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
    """A share as a percentage with one decimal, or a dash for NaN."""
    return "-" if math.isnan(value) else f"{100 * value:.1f}"


MAX_WARNINGS = 20
"""Warnings shown on the terminal; the report lists all."""


def print_preflight(found: Preflight) -> None:
    """Print warnings, what the old model sees in the background, and the training images."""
    console = Console()
    for problem in found.warnings[:MAX_WARNINGS]:
        text = Text("warning: ", style="yellow") + Text(f"{problem.place}: {problem.message}")
        console.print(text, soft_wrap=True)
    if len(found.warnings) > MAX_WARNINGS:
        console.print(f"... and {len(found.warnings) - MAX_WARNINGS} more warnings; report.json lists all")
    ready = found.ready
    if ready is None:
        return
    if ready.in_background:
        listed = ", ".join(f"{name} {share:.1%}" for name, share in ready.in_background.items())
        console.print(Text(f"old classes in the masks' background, by the old model: {listed}"), soft_wrap=True)
    for info in ready.new:
        images, pixels = ready.amounts[info.name]
        console.print(Text(f"new class {info.name}: {pixels:,} pixels in {images} images"), soft_wrap=True)
    source, samples = ready.evaluation
    console.print(
        f"images: {len(ready.train)} to train on, {len(ready.held_out)} held out; forgetting is measured on "
        f"{len(samples)} ({source})",
        soft_wrap=True,
    )


def print_report(report: dict[str, Any]) -> None:
    """Print the tables of old and new classes and the verdict."""
    console = Console()
    for columns, rows in ((OLD_COLUMNS, old_rows(report)), (NEW_COLUMNS, new_rows(report))):
        table = Table(box=box.SIMPLE)
        for index, column in enumerate(columns):
            table.add_column(column, justify="left" if index == 0 else "right")
        for row in rows:
            table.add_row(*(Text(cell) for cell in row))
        console.print(table)
    console.print(Text(verdict(report), style="bold red" if report["rejected"] else "bold green"), soft_wrap=True)


def print_demo(document: dict[str, Any], output: Path) -> None:
    """Print the IoU of every class after each training, then which files to look at."""
    *_, last = document["iou"].values()
    table = Table(title="IoU on images that no training saw, %", box=box.SIMPLE, title_justify="left")
    for column in ("", *last):
        table.add_column(column, justify="right" if column else "left")
    for title, values in document["iou"].items():
        table.add_row(title, *("-" if values.get(name) is None else f"{values[name]:.1f}" for name in last))
    console = Console(markup=False)
    console.print(table)
    for name, reason in document["verdicts"].items():
        console.print(f"{name}: {'accepted' if reason is None else f'rejected by the gate, {reason}'}")
    fold = document["fold"]
    console.print(
        f"deployed: {fold['rc_blocks']} RC blocks folded, error {fold['relative_error']:.0e} of the logit range, "
        f"{fold['parameters']:,} parameters and {fold['macs'] / 1e9:.2f} G MACs, exactly those of a plain network"
    )
    export = document["export"]
    passed = sum(verdict is True for verdict in export["checks"].values())
    console.print(f"exported: {export['target']}; {passed} checks passed; see {output / 'export' / 'report.html'}")
    console.print(
        f"video: {document['video']['frames']} frames; see {output / 'video.mp4'}, {output / 'diff' / 'diff.html'}"
    )
    console.print(
        f"look at {output / 'demo.jpg'}, {output / 'forgetting.png'} and {output / 'rcil' / 'report.html'}; "
        f"numbers in {output / 'report.json'}",
        soft_wrap=True,
    )
