"""The report of `rcil add-class` as Markdown and as an HTML page. Nothing here imports torch."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from rcil.report.html import Block, ImageBlock, TableBlock, TextBlock, write_page

HARDLY_LEARNED = 10.0
"""IoU in percent below which a new class is reported as hardly learned."""
OLD_COLUMNS = ("old class", "measured by", "before", "after", "agreement", "drop", "pixels")
NEW_COLUMNS = ("new class", "IoU", "pixels")
NOTE = (
    "Values are in percent, drops in percentage points. Old classes are compared on all labelled pixels except those "
    "of new classes: by IoU with the masks if the masks label the class, otherwise by agreement of both models."
)


def verdict(report: dict[str, Any]) -> str:
    """One line that says whether the model is accepted or rejected, and why."""
    if report["rejected"]:
        return f"REJECTED: {report['rejected']}"
    drop, limit = report["largest_drop"], report["max_drop"]
    unmeasured = [c["name"] for c in report["old_classes"] if c["measured"] == "no"]
    poor = [c["name"] for c in report["new_classes"] if (c["iou"] or 0) < HARDLY_LEARNED]
    rest = f"; not measured: {', '.join(unmeasured)}" if unmeasured else ""
    rest += f"; hardly learned: {', '.join(poor)}" if poor else ""
    return f"ACCEPTED: the largest drop is {max(drop, 0):.1f} points, limit {limit:g}{rest}"


def old_rows(report: dict[str, Any]) -> list[list[str]]:
    """Rows of the table of old classes."""
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
    """Rows of the table of new classes."""
    return [[c["name"], _number(c["iou"]), f"{c['pixels']:,}"] for c in report["new_classes"]]


def as_markdown(report: dict[str, Any]) -> str:
    """The report as Markdown."""
    parts = [f"# {_title(report)}", f"**{verdict(report)}**", _subtitle(report)]
    for columns, rows in ((OLD_COLUMNS, old_rows(report)), (NEW_COLUMNS, new_rows(report))):
        rule = ["---", *("---:" for _ in columns[1:])]
        parts.append("\n".join(_line(cells) for cells in (list(columns), rule, *rows)))
    parts.append(NOTE)
    return "\n\n".join(parts) + "\n"


def write_html(path: Path, report: dict[str, Any], overlays: Path) -> None:
    """Write the report as an HTML page with embedded pictures.

    Args:
        path: The HTML file.
        report: The content of report.json.
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
