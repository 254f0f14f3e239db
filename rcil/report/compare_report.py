"""The HTML page of a comparison of methods, from the content of `compare.json`. Nothing here imports torch."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from rcil.core.files import replacing
from rcil.report.html import Block, ImageBlock, TableBlock, write_page
from rcil.report.plots import Curve, Panel, step_curves

GROUPS = {"first": "classes of step 0", "later": "later classes", "all": "all classes"}


def write_comparison(folder: Path, document: dict[str, Any]) -> None:
    """Write `curves.png` and `compare.html` into a folder.

    Args:
        folder: Folder of `compare.json`.
        document: The content of `compare.json`; methods may still be missing.
    """
    curves = comparison_curves(document)
    with replacing(folder / "curves.png") as part:
        part.write_bytes(curves)
    seeds = document["seeds"]
    subtitle = f"mean IoU on the test split, {seeds} {'seed' if seeds == 1 else 'seeds'}"
    write_page(folder / "compare.html", f"Methods on {document['task']}", subtitle, _blocks(document, curves))


def comparison_curves(document: dict[str, Any]) -> bytes:
    """Plot the mean IoU over steps, one line per method; joint training, with fewer steps, is a horizontal line."""
    steps = len(document["steps"])
    panels = []
    for group in _groups(document):
        rows = {name: [step[group] for step in row["curve"]] for name, row in document["rows"].items()}
        curves = [Curve(name, [c["mean"] for c in cells], [c["sd"] for c in cells]) for name, cells in rows.items()]
        whole = [curve for curve in curves if len(curve.means) == steps]
        panels.append(Panel(GROUPS[group], whole, levels=[curve for curve in curves if curve not in whole]))
    return step_curves(panels, [str(step) for step in range(steps)], title=f"{document['task']}: mean IoU over steps")


def as_text(cell: dict[str, Any]) -> str:
    """Format a cell: `62.1 ± 0.8`, `62.1` for a single run, or a dash."""
    if cell["mean"] is None:
        return "-"
    spread = "" if cell.get("seeds") == 1 else f" ± {100 * cell['sd']:.1f}"
    return f"{100 * cell['mean']:.1f}{spread}"


def _groups(document: dict[str, Any]) -> list[str]:
    """The groups with values; if steps add domains, there are no later classes."""
    cells = [step for row in document["rows"].values() for step in row["curve"]]
    return [group for group in GROUPS if group == "all" or any(cell[group]["mean"] is not None for cell in cells)]


def _blocks(document: dict[str, Any], curves: bytes) -> list[Block]:
    rows = document["rows"]
    last = TableBlock(
        "After the last step, %",
        ("method", *GROUPS.values()),
        [(name, *(as_text(row[group]) for group in GROUPS)) for name, row in rows.items()],
        "Mean ± standard deviation over seeds." if document["seeds"] > 1 else "",
    )
    image = ImageBlock(
        "Over the steps",
        curves,
        "Mean IoU of each method after each step; the tables below have the numbers.",
        "Bars and bands: one standard deviation over seeds." if document["seeds"] > 1 else "",
    )
    steps = [f"step {index}" for index in range(len(document["steps"]))]
    tables = [_step_table(document, group, steps) for group in _groups(document)] if len(steps) > 1 else []
    return [last, image, *tables]


def _step_table(document: dict[str, Any], group: str, steps: list[str]) -> TableBlock:
    """A table of the mean IoU after each step; joint training, with fewer steps, is in the last column."""
    rows = []
    for name, row in document["rows"].items():
        cells = [as_text(step[group]) for step in row["curve"]]
        rows.append((name, *[""] * (len(steps) - len(cells)), *cells))
    return TableBlock(f"After each step, {GROUPS[group]}, %", ("method", *steps), rows)
