"""How the report of a taught class is shown: on the terminal, as Markdown and as a page. Reads the report alone."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from rcil.report.html import Block, ImageBlock, TableBlock, TextBlock, write_page
from rcil.site.preflight import Preflight

SHOWN = 20
"""Problems on the terminal; the report lists all."""
HARDLY_LEARNED = 10.0
"""IoU below which a new class gets a remark, percent."""
OLD_COLUMNS = ("old class", "measured by", "before", "after", "agreement", "drop", "pixels")
NEW_COLUMNS = ("new class", "IoU", "pixels")
NOTE = (
    "Percent, and points of it. Old classes are compared on all labelled pixels but those of the new classes: by IoU "
    "with the masks where these label the class, by agreement of both models' predictions where they do not."
)


def print_preflight(found: Preflight) -> None:
    """Warnings, what the old model sees in the background, and what will be trained on."""
    console = Console()
    for problem in found.warnings[:SHOWN]:
        text = Text("warning: ", style="yellow") + Text(f"{problem.place}: {problem.message}")
        console.print(text, soft_wrap=True)
    if len(found.warnings) > SHOWN:
        console.print(f"... and {len(found.warnings) - SHOWN} more warnings; report.json lists all")
    ready = found.ready
    if ready is None:
        return
    if ready.in_background:
        listed = ", ".join(f"{name} {share:.1%}" for name, share in ready.in_background.items())
        console.print(Text(f"old classes in the masks' background, by the old model: {listed}"), soft_wrap=True)
    for info in ready.new:
        images, pixels = ready.amounts[info.name]
        console.print(Text(f"new class {info.name}: {pixels:,} pixels in {images} images"), soft_wrap=True)
    place, samples = ready.evaluation
    console.print(
        f"images: {len(ready.train)} to train on, {len(ready.held_out)} held out; forgetting is measured on "
        f"{len(samples)} ({place})",
        soft_wrap=True,
    )


def print_report(report: dict[str, Any]) -> None:
    """Both tables and the verdict."""
    console = Console()
    for columns, rows in ((OLD_COLUMNS, old_rows(report)), (NEW_COLUMNS, new_rows(report))):
        table = Table(box=box.SIMPLE)
        for place, column in enumerate(columns):
            table.add_column(column, justify="left" if place == 0 else "right")
        for row in rows:
            table.add_row(*(Text(cell) for cell in row))
        console.print(table)
    console.print(Text(verdict(report), style="bold red" if report["rejected"] else "bold green"), soft_wrap=True)


def verdict(report: dict[str, Any]) -> str:
    """One line: accepted or rejected, and why."""
    if report["rejected"]:
        return f"REJECTED: {report['rejected']}"
    drop, limit = report["largest_drop"], report["max_drop"]
    unmeasured = [c["name"] for c in report["old_classes"] if c["measured"] == "no"]
    poor = [c["name"] for c in report["new_classes"] if (c["iou"] or 0) < HARDLY_LEARNED]
    rest = f"; not measured: {', '.join(unmeasured)}" if unmeasured else ""
    rest += f"; hardly learned: {', '.join(poor)}" if poor else ""
    return f"ACCEPTED: the largest drop is {max(drop, 0):.1f} points, limit {limit:g}{rest}"


def old_rows(report: dict[str, Any]) -> list[list[str]]:
    """Cells of `OLD_COLUMNS`."""
    return [
        [
            c["name"],
            "not measured" if c["measured"] == "no" else c["measured"],
            *(_number(c[key]) for key in ("before", "after", "agreement", "drop")),
            f"{c['pixels']:,}",
        ]
        for c in report["old_classes"]
    ]


def new_rows(report: dict[str, Any]) -> list[list[str]]:
    """Cells of `NEW_COLUMNS`."""
    return [[c["name"], _number(c["iou"]), f"{c['pixels']:,}"] for c in report["new_classes"]]


def as_markdown(report: dict[str, Any]) -> str:
    """The report as a short Markdown text."""
    parts = [f"# {_title(report)}", f"**{verdict(report)}**", _subtitle(report)]
    for columns, rows in ((OLD_COLUMNS, old_rows(report)), (NEW_COLUMNS, new_rows(report))):
        rule = ["---", *("---:" for _ in columns[1:])]
        parts.append("\n".join(_line(cells) for cells in (list(columns), rule, *rows)))
    parts.append(NOTE)
    return "\n\n".join(parts) + "\n"


def write_html(path: Path, report: dict[str, Any], overlays: Path) -> None:
    """The report as a page with its pictures inside.

    Args:
        path: The page.
        report: The document of report.json.
        overlays: Folder of the pictures that the report names.
    """
    blocks: list[Block] = [
        TextBlock(verdict(report)),
        TableBlock("Old classes", OLD_COLUMNS, old_rows(report), NOTE),
        TableBlock("New classes", NEW_COLUMNS, new_rows(report)),
    ]
    problems = [[p["place"], p["message"]] for p in report["preflight"]["problems"]]
    if problems:
        blocks.append(TableBlock("Before training", ("place", "warning"), problems))
    blocks += [
        ImageBlock(name, (overlays / name).read_bytes(), f"{name}: image, old model, new model, difference")
        for name in report["overlays"]
    ]
    write_page(path, _title(report), _subtitle(report), blocks)


def _title(report: dict[str, Any]) -> str:
    return f"Adding {', '.join(c['name'] for c in report['new_classes'])}"


def _subtitle(report: dict[str, Any]) -> str:
    return (
        f"Method {report['method']}, {report['preflight']['train_images']} training images; measured on "
        f"{report['images']} images ({report['evaluated_on']})."
    )


def _line(cells: list[str]) -> str:
    return f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in cells)} |"


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.1f}"
