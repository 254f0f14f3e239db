"""The report of `rcil add-class` as Markdown and as an HTML page. Nothing here imports torch."""

from __future__ import annotations

import csv
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from rcil.evaluation.bootstrap import CONFIDENCE, MIN_GROUPS, scenes
from rcil.report.html import (
    BannerBlock,
    Block,
    GalleryBlock,
    ImageBlock,
    Mark,
    StepsBlock,
    TableBlock,
    Tone,
    write_page,
)
from rcil.site.verdict import Limits

if TYPE_CHECKING:
    from rcil.report.plots import Estimate

TONES: dict[str, Tone] = {"accepted": "good", "uncertain": "unsure", "rejected": "bad"}
"""Colour of every verdict."""
STATES: dict[str, tuple[str, Tone]] = {
    "kept": ("kept", "good"),
    "few": ("few scenes", "unsure"),
    "uncertain": ("uncertain", "unsure"),
    "broken": ("broken", "bad"),
    "unmeasured": ("not measured", "unsure"),
    "free": ("no limit", "dim"),
}
"""Text and colour of the state of a class."""
LINE_COLOURS: dict[Tone, str] = {"good": "#1a7f37", "unsure": "#bf8700", "bad": "#cf222e", "dim": "#6e7781"}
OLD_COLUMNS = (
    *("old class", "measured by", "before", "after", "agreement", "drop", f"{CONFIDENCE:.0%} interval", "limit"),
    *("taken", "pixels", "scenes"),
)
NEW_COLUMNS = ("new class", "IoU", f"{CONFIDENCE:.0%} interval", "limit", "pixels", "scenes")
NOTE = (
    "Values are in percent, drops in percentage points. Old classes are compared on all labelled pixels except those "
    "of new classes: by IoU with the masks if the masks label the class, otherwise by agreement of both models. "
    "Taken: share of the class's pixels that the new model assigns to a new class. Background contains "
    "everything without a name."
)
PICTURES = (
    "One picture per scene: poor, good and typical images of the new class, and the largest changes of old classes. "
    "In the panel of errors, right pixels have a faint class colour, and wrong ones a strong colour of the legend. "
    "Where masks do not label an old class, the old model's prediction counts as right."
)


def verdict(report: dict[str, Any]) -> str:
    """One line that says whether the model is accepted, uncertain or rejected, and why."""
    return f"{report['verdict'].upper()}: {report['reason']}"


def certainty(report: dict[str, Any]) -> str:
    """On how much evidence the verdict is based, in a sentence or two."""
    images, groups = report["images"], report["groups"]
    text = (
        f"Measured on {images} images ({report['evaluated_on']}), which show {scenes(groups)}: images that look alike, "
        "such as consecutive frames of a video, count as one scene."
    )
    if groups < MIN_GROUPS:
        text += f" This is too little evidence: intervals need at least {MIN_GROUPS} different scenes."
    return text


def old_rows(report: dict[str, Any]) -> list[list[str]]:
    """Rows of the table of old classes."""
    states = _states(report)
    return [
        [
            c["name"],
            "not measured" if c["measured"] == "no" else c["measured"],
            *(_number(c[key]) for key in ("before", "after", "agreement", "drop")),
            _interval(c["interval"]),
            STATES[states[c["name"]]][0],
            _number(c["taken"]),
            f"{c['pixels']:,}",
            str(c["groups"]),
        ]
        for c in report["old_classes"]
    ]


def new_rows(report: dict[str, Any]) -> list[list[str]]:
    """Rows of the table of new classes."""
    states = _states(report)
    return [
        [
            c["name"],
            _number(c["iou"]),
            _interval(c["interval"]),
            STATES[states[c["name"]]][0],
            f"{c['pixels']:,}",
            str(c["groups"]),
        ]
        for c in report["new_classes"]
    ]


def as_markdown(report: dict[str, Any]) -> str:
    """The report as Markdown."""
    parts = [f"# {_title(report)}", f"**{verdict(report)}**", certainty(report), limits_text(report)]
    for columns, rows in ((OLD_COLUMNS, old_rows(report)), (NEW_COLUMNS, new_rows(report))):
        rule = ["---", *("---:" for _ in columns[1:])]
        parts.append("\n".join(_line(cells) for cells in (list(columns), rule, *rows)))
    parts += [NOTE, "## Next"]
    for number, step in enumerate(report["next"], 1):
        command = f"\n\n   ```\n   {step['command']}\n   ```" if step["command"] else ""
        parts.append(f"{number}. {step['text']}{command}")
    return "\n\n".join(parts) + "\n"


def limits_text(report: dict[str, Any]) -> str:
    """What the model must fulfil."""
    limits = Limits(*(report[key] for key in ("max_drop", "min_new", "max_background_drop", "strict")))
    old = f"Old classes may lose at most {limits.max_drop:g} points (--max-drop)"
    if limits.strict:
        old = "the method leaves the logits of old classes unchanged, so that they have no limit"
    new = f"new classes need an IoU of at least {limits.min_new:g} % (--min-new)"
    background = "background has no limit (--max-background-drop)"
    if limits.max_background_drop is not None:
        background = f"background may lose at most {limits.max_background_drop:g} points (--max-background-drop)"
    return (
        f"{old}, {new}, and {background}. A limit is kept or broken if the whole {CONFIDENCE:.0%} interval says so; "
        "otherwise the verdict is uncertain."
    )


def write_html(path: Path, report: dict[str, Any], overlays: Path, log: Path) -> None:
    """Write the report as an HTML page with embedded pictures.

    Args:
        path: The HTML file.
        report: The content of report.json.
        overlays: Folder of the pictures that the report names.
        log: The log of the training; may be missing.
    """
    reason = report["reason"]
    blocks: list[Block] = [
        BannerBlock(report["verdict"].upper(), f"{reason[:1].upper()}{reason[1:]}.", TONES[report["verdict"]]),
        _table("New classes", NEW_COLUMNS, new_rows(report), limits_text(report)),
        _table("Old classes", OLD_COLUMNS, old_rows(report), NOTE),
        *_plots(report, log),
    ]
    problems = [[p["place"], p["message"]] for p in report["preflight"]["problems"]]
    if problems:
        blocks.append(TableBlock("Before training", ("place", "warning"), problems, prose=True))
    pictures = [
        ImageBlock(
            p["sample"],
            (overlays / p["file"]).read_bytes(),
            f"{p['sample']}: image, ground truth, errors; old model, new model, difference",
            p["caption"],
        )
        for p in report["pictures"]
    ]
    if pictures:
        blocks.append(GalleryBlock("Pictures", pictures, PICTURES))
    blocks.append(StepsBlock("Next", [(step["text"], step["command"]) for step in report["next"]]))
    subtitle = f"Method {report['method']}, {report['preflight']['train_images']} training images. {certainty(report)}"
    write_page(path, _title(report), subtitle, blocks)


def _plots(report: dict[str, Any], log: Path) -> list[ImageBlock]:
    """Intervals, training curves and the confusion matrix, as far as there is something to draw."""
    from rcil.report.plots import confusion_plot, interval_plot, training_curves

    plots = []
    if groups := _estimates(report):
        note = f"Dots: measured values. Bars: {CONFIDENCE:.0%} intervals. Dashed: limits. Green is kept, red is broken."
        plots.append(
            ImageBlock("How certain this is", interval_plot(groups), "The intervals of the tables above.", note)
        )
    rows = read_log(log)
    if rows:
        alt = "Loss terms of every iteration, and mean IoU of the held-out images after every epoch."
        note = (
            "The held-out images choose the epoch that is kept. The verdict needs them only if there is no split val."
        )
        plots.append(ImageBlock("Training", training_curves(rows), alt, note))
    names = [c["name"] for c in (*report["old_classes"], *report["new_classes"])]
    matrix = np.array(report["confusion"], np.int64)
    if matrix.size and matrix.any():
        alt = f"Matrix of the {len(names)} classes: where the pixels of each true class went, in percent."
        note = "Rows sum to 100 %; a grey row belongs to a class that is not labelled in the images."
        png = confusion_plot(matrix, names, len(report["old_classes"]))
        plots.append(ImageBlock("Confusion of the new model", png, alt, note))
    return plots


def _estimates(report: dict[str, Any]) -> list[tuple[str, str, float | None, list[Estimate]]]:
    from rcil.report.plots import Estimate

    states = _states(report)

    def estimates(classes: list[dict[str, Any]], key: str) -> list[Estimate]:
        return [
            Estimate(c["name"], c[key], c["interval"], LINE_COLOURS[STATES[states[c["name"]]][1]])
            for c in classes
            if c[key] is not None
        ]

    groups: list[tuple[str, str, float | None, list[Estimate]]] = [
        ("New classes", "IoU, %", report["min_new"] or None, estimates(report["new_classes"], "iou")),
        (
            "Old classes",
            "drop, points",
            None if report["strict"] else report["max_drop"],
            estimates(report["old_classes"], "drop"),
        ),
    ]
    return [group for group in groups if group[3]]


def read_log(path: Path) -> list[dict[str, float]]:
    """Rows of the log of a training, without empty cells; empty if there is no log."""
    if not path.exists():
        return []
    with path.open(encoding="utf-8", newline="") as file:
        return [{key: float(value) for key, value in row.items() if value} for row in csv.DictReader(file)]


def _table(title: str, columns: Sequence[str], rows: Sequence[Sequence[str]], note: str) -> TableBlock:
    """A table without empty columns, in which the states of the limits have their colours."""
    tones = dict(STATES.values())
    shown = [i for i, column in enumerate(columns) if column != "agreement" or any(row[i] != "-" for row in rows)]
    cells = [[Mark(row[i], tones[row[i]]) if columns[i] == "limit" else row[i] for i in shown] for row in rows]
    return TableBlock(title, [columns[i] for i in shown], cells, note)


def _states(report: dict[str, Any]) -> dict[str, str]:
    return {finding["name"]: finding["state"] for finding in report["findings"]}


def _title(report: dict[str, Any]) -> str:
    return f"Adding {', '.join(c['name'] for c in report['new_classes'])}"


def _line(cells: list[str]) -> str:
    return f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in cells)} |"


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.1f}"


def _interval(interval: Sequence[float] | None) -> str:
    return "-" if interval is None else f"{interval[0]:.1f} to {interval[1]:.1f}"
