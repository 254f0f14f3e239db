"""HTML pages with plots: the report of `rcil eval -o`, and the comparison of methods by `rcil compare`."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from rcil.core.documents import write_json
from rcil.core.errors import ConfigError
from rcil.core.files import write_file
from rcil.evaluation.bootstrap import CONFIDENCE, MIN_GROUPS, percent_interval, scenes
from rcil.report.html import BannerBlock, Block, Cell, GalleryBlock, ImageBlock, TableBlock, TextBlock, write_page
from rcil.report.models import ClassHistory, Evaluated, as_document, headings, histories, labelled_by_step, labels
from rcil.report.plots import Curve, Panel, class_bars, confusion_plot, step_curves

if TYPE_CHECKING:
    from rcil.evaluation.evaluate import ClassResult

GROUPS = {"first": "classes of step 0", "later": "later classes", "all": "all classes"}
"""Titles of the groups of classes in `compare.json`."""


@dataclass(frozen=True)
class Source:
    """The data on which the models were evaluated."""

    data: Path
    split: str
    test_crop: int | None = None
    """Side of the centre crops that were evaluated; None: whole images."""


class ReportPaths(NamedTuple):
    """The files of a report."""

    json: Path
    page: Path
    confusion: Path


def report_paths(output: Path) -> ReportPaths:
    """The files of a report: `report.json`, `report.html` and `report.confusion.png`."""
    if output.suffix.lower() in (".html", ".htm", ".png"):
        raise ConfigError(
            f"{output} does not end with .json",
            f"Give -o {output.with_suffix('.json')}; the page and the plot are written next to it.",
        )
    stem = output.stem if output.suffix.lower() == ".json" else output.name
    return ReportPaths(output, output.with_name(f"{stem}.html"), output.with_name(f"{stem}.confusion.png"))


def write_report(paths: ReportPaths, models: Sequence[Evaluated], source: Source) -> None:
    """Write the JSON file, the page and the plot.

    Args:
        paths: See `report_paths`.
        models: One or more, in the order of their steps; confusion and bars show the last.
        source: The data on which they were evaluated.
    """
    write_json(paths.json, as_document(models))
    last = models[-1]
    picture = confusion_plot(last.report.confusion, [c.name for c in last.report.classes], first_new(last))
    write_file(paths.confusion, picture)
    title = f"IoU of {last.path.name}" if len(models) == 1 else f"IoU of {len(models)} models"
    subtitle = f"on {last.report.images} images of {source.data}, split {source.split}{_scenes(last)}"
    write_page(paths.page, title, subtitle, blocks(models, source, picture))


def _scenes(model: Evaluated) -> str:
    """The number of scenes, for the subtitle."""
    groups = model.report.groups
    return "" if groups is None else f", which show {scenes(groups)}; images that look alike count as one"


def first_new(model: Evaluated) -> int:
    """The first classifier row of the latest step that added classes; 0 for a model of step 0."""
    steps = [c.step for c in model.report.classes]
    return sum(step < max(steps) for step in steps)


def blocks(models: Sequence[Evaluated], source: Source, confusion: bytes) -> list[Block]:
    """The content of the page, most important first."""
    classes = histories(models)
    last = models[-1]
    parts: list[Block] = [*_doubts(last), _means(models)]
    if len(models) > 1:
        parts.append(_curves(models))
    parts += [_class_table(models, classes), _bars(models, classes)]
    parts.append(
        ImageBlock(
            f"Confusion of {last.path.name}",
            confusion,
            f"Matrix of the {len(last.report.classes)} classes: where the pixels of each true class went, in percent.",
            "Rows sum to 100 %; a grey row belongs to a class that does not occur in the images.",
        )
    )
    if last.pictures:
        parts.append(_gallery(last))
    return [*parts, _facts(models, source)]


def _doubts(model: Evaluated) -> list[BannerBlock]:
    """A warning if there are too few scenes."""
    groups = model.report.groups
    if groups is None or groups >= MIN_GROUPS:
        return []
    text = (
        f"The images show {scenes(groups)}. Intervals need at least {MIN_GROUPS}; evaluate on images of other scenes."
    )
    return [BannerBlock("TOO LITTLE EVIDENCE", text, "unsure")]


def _gallery(model: Evaluated) -> GalleryBlock:
    pictures = [
        ImageBlock(p.sample, p.jpeg, f"{p.sample}: image, ground truth, prediction, errors", p.caption)
        for p in model.pictures
    ]
    note = (
        "One picture per scene: poor, good and typical images of the classes of the latest step. In the panel of "
        "errors, right pixels have a faint class colour, and wrong ones a strong colour of the legend."
    )
    return GalleryBlock(f"Pictures of {model.path.name}", pictures, note)


def _means(models: Sequence[Evaluated]) -> TableBlock:
    columns = ("model", "step", "classes", "old", "new", "all", "pixel accuracy")
    rows: list[tuple[Cell, ...]] = [
        (
            str(m.path),
            m.metadata.step,
            len(m.report.classes),
            *(100 * value for value in (m.report.old, m.report.new, m.report.all, m.report.pixel_accuracy)),
        )
        for m in models
    ]
    note = "New: the classes of the model's latest step. Old: those of earlier steps, background included."
    return TableBlock("Mean IoU, %", columns, rows, note)


def _curves(models: Sequence[Evaluated]) -> ImageBlock:
    curves = [
        Curve("old classes", [m.report.old for m in models]),
        Curve("new classes", [m.report.new for m in models]),
        Curve("all classes", [m.report.all for m in models]),
    ]
    xlabel = "after step" if labelled_by_step(models) else "model"
    png = step_curves([Panel("", curves)], labels(models), title="Mean IoU of each model", xlabel=xlabel)
    return ImageBlock("Over the steps", png, "Mean IoU of old, new and all classes of each model; the table has them.")


def _class_table(models: Sequence[Evaluated], classes: Sequence[ClassHistory]) -> TableBlock:
    last = models[-1].report
    pixels = {c.name: c.pixels for c in last.classes}
    total = sum(pixels.values())
    names = headings(models) if len(models) > 1 else ["IoU"]
    known = {c.name: c for c in last.classes}
    certain = last.groups is not None
    more = (f"{CONFIDENCE:.0%} interval", "scenes") if certain else ()
    rows: list[tuple[Cell, ...]] = [
        (
            c.name,
            c.step,
            *(100 * value for value in c.iou),
            *(_certainty(known.get(c.name)) if certain else ()),
            pixels.get(c.name),
            100 * pixels[c.name] / total if total and c.name in pixels else None,
        )
        for c in classes
    ]
    note = ""
    if certain:
        note = f"The interval is that of {names[-1]}: it contains the IoU on similar images with a probability of "
        note += f"{CONFIDENCE:.0%}. Scenes: groups of similar images in which the class occurs."
    return TableBlock("IoU per class, %", ("class", "since step", *names, *more, "pixels", "of all, %"), rows, note)


def _certainty(c: ClassResult | None) -> tuple[Cell, Cell]:
    """The interval of a class in percent, and the number of scenes that show it."""
    if c is None:
        return None, None
    return percent_interval(c.interval), c.groups


def _bars(models: Sequence[Evaluated], classes: Sequence[ClassHistory]) -> ImageBlock:
    """The classes of the last model, with the IoU in the first earlier model that knows each class."""
    known = {c.name for c in models[-1].report.classes}
    shown = [c for c in classes if c.name in known]
    earliest = [next((iou for iou in c.iou[:-1] if not math.isnan(iou)), None) for c in shown]
    before = earliest if len(models) > 1 else None
    png = class_bars(
        [c.name for c in shown], before, [c.iou[-1] for c in shown], labels=("earliest model", "latest model")
    )
    note = "Earliest: the first of the models above, before the last, that knows the class." if before else ""
    return ImageBlock("Classes", png, "IoU of each class as bars; the table above has the numbers.", note)


def _facts(models: Sequence[Evaluated], source: Source) -> TextBlock:
    last = models[-1]
    cut = "" if source.test_crop is None else f", centre crops of {source.test_crop} pixels"
    lines = [
        f"Model: {last.path}, step {last.metadata.step}",
        f"Backbone: {last.metadata.architecture.backbone}",
        *([f"Method: {last.metadata.method}"] if last.metadata.method else []),
        f"Data: {source.data}, split {source.split}, {last.report.images} images, seen at scale {last.scale:g}{cut}",
        f"Classes: {', '.join(c.name for c in last.report.classes)}",
    ]
    if last.report.unknown:
        lines.append(f"Counted as background, unknown to the model: {', '.join(last.report.unknown)}")
    return TextBlock("\n".join(lines))


def write_comparison(folder: Path, document: dict[str, Any]) -> None:
    """Write `curves.png` and `compare.html` into a folder.

    Args:
        folder: Folder of `compare.json`.
        document: The content of `compare.json`; methods may still be missing.
    """
    curves = comparison_curves(document)
    write_file(folder / "curves.png", curves)
    seeds = document["seeds"]
    subtitle = f"mean IoU on the test split, {seeds} {'seed' if seeds == 1 else 'seeds'}"
    write_page(
        folder / "compare.html", f"Methods on {document['task']}", subtitle, _comparison_blocks(document, curves)
    )


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


def paper_column(document: dict[str, Any]) -> list[str]:
    """The paper's mean IoU of all classes for every row of a comparison; empty if it has none."""
    values = [row.get("paper") for row in document["rows"].values()]
    return [] if not any(values) else ["-" if value is None else f"{value:.1f}" for value in values]


def _groups(document: dict[str, Any]) -> list[str]:
    """The groups with values; if steps add domains, there are no later classes."""
    cells = [step for row in document["rows"].values() for step in row["curve"]]
    return [group for group in GROUPS if group == "all" or any(cell[group]["mean"] is not None for cell in cells)]


def _comparison_blocks(document: dict[str, Any], curves: bytes) -> list[Block]:
    columns = ["method", *GROUPS.values()]
    rows = [(name, *(as_text(row[group]) for group in GROUPS)) for name, row in document["rows"].items()]
    if published := paper_column(document):
        columns.append("paper, all classes")
        rows = [(*row, cell) for row, cell in zip(rows, published, strict=True)]
    last = TableBlock(
        "After the last step, %",
        columns,
        rows,
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
