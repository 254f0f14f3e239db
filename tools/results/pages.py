"""The page of a table: Markdown, JSON and a plot."""

from __future__ import annotations

import json
import statistics
from pathlib import Path
from typing import Any

from rcil.core.documents import write_json
from rcil.core.files import write_file
from rcil.report.pages import as_text, comparison_curves
from tools.results.cells import Table
from tools.results.plots import ablation_bars, heat_map

COLUMNS = {"first": "first classes", "later": "later classes", "all": "all"}


def write_table(table: Table, document: dict[str, Any], folder: Path) -> None:
    """Write NAME.json, NAME.md and NAME.png; the page shows NAME-images.jpg if it exists.

    Args:
        table: The table.
        document: Result of `summarise_table`.
        folder: Folder of the pages.
    """
    pictured = (folder / f"{table.name}-images.jpg").is_file()
    without_nan = json.loads(json.dumps(document), parse_constant=lambda _: None)
    write_json(folder / f"{table.name}.json", without_nan)
    write_file(folder / f"{table.name}.png", _plot(table, without_nan))
    write_file(folder / f"{table.name}.md", as_page(table, without_nan, pictured=pictured))


def as_page(table: Table, document: dict[str, Any], *, pictured: bool) -> str:
    """The page in Markdown."""
    rows = document["rows"]
    seeds = sorted({cell["seed"] for row in rows.values() for cell in row["cells"].values()})
    minutes = sum(cell["cpu_seconds"] for row in rows.values() for cell in row["cells"].values()) / 60
    lines = [f"# {table.title}", "", table.about, "", "```", document["command"], "```", ""]
    lines.append(
        f"Mean ± standard deviation in % over {len(table.replicas)} runs ({', '.join(table.replicas)}; seeds "
        f"{', '.join(map(str, seeds))}), {minutes:.0f} core minutes in total."
    )
    if document["missing"]:
        lines.append(f"**{document['missing']} cells are missing.**")
    lines += [
        "",
        *_markdown(table, rows),
        "",
        f"![{table.title}]({table.name}.png)",
        "",
    ]
    if table.detailed:
        lines += ["IoU of every class after the last step:", "", *_of_classes(rows), ""]
    if pictured:
        lines += [f"![Masks of the methods]({table.name}-images.jpg)", ""]
    lines += [f"The results of every class after every step are in [{table.name}.json]({table.name}.json).", ""]
    return "\n".join(lines)


def _markdown(table: Table, rows: dict[str, Any]) -> list[str]:
    """The table; rows with fewer runs than there are replicas state their number."""
    replicas, held = len(table.replicas), table.held_out
    filled = {key for row in rows.values() for key in COLUMNS if row[key]["mean"] is not None}
    columns = {key: title for key, title in COLUMNS.items() if key in filled}
    titles = ["", *columns.values(), *(["held-out, all"] if held else [])]
    lines = ["| " + " | ".join(titles) + " |", "|" + "---|" * len(titles)]
    for name, row in rows.items():
        cells = [as_text(row[key]) for key in columns]
        if held:
            cells.append(as_text(row["held_out"]["all"]) if "held_out" in row else "-")
        there = len(row["cells"])
        title = name if there == replicas else f"{name} ({there} of {replicas} runs)"
        lines.append(f"| {title} | " + " | ".join(cells) + " |")
    return lines


def _of_classes(rows: dict[str, Any]) -> list[str]:
    """A table of the IoU of every class, as the mean over runs."""
    names = list(dict.fromkeys(name for row in rows.values() for name in _last_step(row)))
    lines = ["| " + " | ".join(["", *names]) + " |", "|" + "---|" * (len(names) + 1)]
    for title, row in rows.items():
        lines.append(f"| {title} | " + " | ".join(_last_step(row).get(name, "-") for name in names) + " |")
    return lines


def _last_step(row: dict[str, Any]) -> dict[str, str]:
    """IoU in % by class after the last step of all runs of a row, without classes that have none."""
    runs = [cell["steps"][-1] for cell in row["cells"].values()]
    known = {name: [run[name] for run in runs if run[name] is not None] for name in runs[0]}
    return {name: f"{100 * statistics.fmean(values):.1f}" for name, values in known.items() if values}


def _plot(table: Table, document: dict[str, Any]) -> bytes:
    match table.look:
        case "methods":
            return comparison_curves({**document, "task": table.title})
        case "grid":
            return heat_map(table.title, {name: row["all"]["mean"] for name, row in document["rows"].items()})
        case "ablation":
            return ablation_bars(table.title, {name: row["all"] for name, row in document["rows"].items()})
