"""The report of `rcil eval -o`: a JSON file, and an HTML page and plots next to it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from rcil.core.documents import write_json
from rcil.core.errors import ConfigError
from rcil.core.files import replacing
from rcil.report.html import Block, Cell, ImageBlock, TableBlock, TextBlock, write_page
from rcil.report.models import ClassHistory, Evaluated, as_document, headings, histories, labelled_by_step, labels
from rcil.report.plots import Curve, Panel, class_bars, confusion_plot, step_curves


@dataclass(frozen=True)
class Source:
    """The data on which the models were evaluated."""

    data: Path
    split: str
    scale: float
    """Factor by which images were resized for the networks."""
    test_crop: int | None = None
    """Side of the centre crops that were evaluated; None: whole images."""


@dataclass(frozen=True)
class ReportPaths:
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
    with replacing(paths.confusion) as part:
        part.write_bytes(picture)
    title = f"IoU of {last.path.name}" if len(models) == 1 else f"IoU of {len(models)} models"
    subtitle = f"on {last.report.images} images of {source.data}, split {source.split}"
    write_page(paths.page, title, subtitle, blocks(models, source, picture))


def first_new(model: Evaluated) -> int:
    """The first classifier row of the latest step that added classes; 0 for a model of step 0."""
    steps = [c.step for c in model.report.classes]
    return sum(step < max(steps) for step in steps)


def blocks(models: Sequence[Evaluated], source: Source, confusion: bytes) -> list[Block]:
    """The content of the page, most important first."""
    classes = histories(models)
    last = models[-1]
    parts: list[Block] = [_means(models)]
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
    return [*parts, _facts(models, source)]


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
    rows: list[tuple[Cell, ...]] = [
        (
            c.name,
            c.step,
            *(100 * value for value in c.iou),
            pixels.get(c.name),
            100 * pixels[c.name] / total if total and c.name in pixels else None,
        )
        for c in classes
    ]
    return TableBlock("IoU per class, %", ("class", "since step", *names, "pixels", "of all, %"), rows)


def _bars(models: Sequence[Evaluated], classes: Sequence[ClassHistory]) -> ImageBlock:
    """The classes of the last model, with the IoU in the first earlier model that knows each class."""
    known = {c.name for c in models[-1].report.classes}
    shown = [c for c in classes if c.name in known]
    before = [_earliest(c) for c in shown] if len(models) > 1 else None
    png = class_bars(
        [c.name for c in shown], before, [c.iou[-1] for c in shown], labels=("earliest model", "latest model")
    )
    note = "Earliest: the first of the models above, before the last, that knows the class." if before else ""
    return ImageBlock("Classes", png, "IoU of each class as bars; the table above has the numbers.", note)


def _earliest(history: ClassHistory) -> float | None:
    return next((value for value in history.iou[:-1] if not math.isnan(value)), None)


def _facts(models: Sequence[Evaluated], source: Source) -> TextBlock:
    last = models[-1]
    cut = "" if source.test_crop is None else f", centre crops of {source.test_crop} pixels"
    lines = [
        f"Model: {last.path}, step {last.metadata.step}",
        f"Backbone: {last.metadata.architecture.backbone}",
        *([f"Method: {last.metadata.method}"] if last.metadata.method else []),
        f"Data: {source.data}, split {source.split}, {last.report.images} images, seen at scale {source.scale:g}{cut}",
        f"Classes: {', '.join(c.name for c in last.report.classes)}",
    ]
    if last.report.unknown:
        lines.append(f"Counted as background, unknown to the model: {', '.join(last.report.unknown)}")
    return TextBlock("\n".join(lines))
