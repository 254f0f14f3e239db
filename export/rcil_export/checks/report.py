"""Results of checks as text, as JSON, and as a self-contained HTML page with plots."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from rcil.report.html import Block, ImageBlock, TableBlock, write_page
from rcil.report.plots import COLOURS, as_png, make_figure
from rcil_export.checks.outputs.report import PARTS, OutputsReport, WorstImage
from rcil_export.checks.result import Item, Result

MAX_SWAPS = 12
MIN_DRAWN_ERROR = 1e-9
"""Smaller errors are drawn as this one, because a logarithmic axis has no zero."""


def verdict(item: Item) -> str:
    """The verdict of an item in one word."""
    if item.undecided:
        return "undecided"
    return "warn" if item.warning else {True: "pass", False: "FAIL", None: "–"}[item.passed]


def as_text(results: Sequence[Result]) -> str:
    """A short table: what was checked, measured and required."""
    lines: list[str] = []
    items = [item for result in results for item in result.items]
    width = max((len(item.title) for item in items), default=0)
    said = max([4, *(len(verdict(item)) for item in items)])
    for result in results:
        lines.append(result.title)
        lines += [f"  about the {what} with sha256 {value}" for what, value in result.sha256.items()]
        for item in result.items:
            how = f" ({item.kind})" if item.passed and item.kind else ""
            lines.append(f"  {verdict(item):{said}}  {item.title:{width}}  {item.measured}{how}")
            if item.passed is False:
                lines.append(f"  {'':{said}}  {'':{width}}  required: {item.required}")
    return "\n".join([*lines, summary(results)])


def summary(results: Sequence[Result]) -> str:
    """One line: the number of passed checks, and what failed, warns, is undecided or was not checked."""
    items = [item for result in results for item in result.items]
    passed = sum(item.passed is True for item in items)
    parts = {
        "FAILED": [item.title for item in items if item.passed is False],
        "warnings": [item.title for item in items if item.warning],
        "undecided, so not shown": [item.title for item in items if item.undecided],
        "not checked": _not_checked(results),
    }
    return "; ".join([f"{passed} passed", *(f"{key}: {', '.join(names)}" for key, names in parts.items() if names)])


def _not_checked(results: Sequence[Result]) -> list[str]:
    return list(dict.fromkeys(item.title for result in results for item in result.items if item.not_checked))


def write_html(
    path: Path, title: str, facts: Mapping[str, str], results: Sequence[Result], outputs: Sequence[OutputsReport] = ()
) -> None:
    """Write the HTML page.

    Args:
        path: The .html file.
        title: Heading of the page.
        facts: What was checked: files, sizes, versions.
        results: The results of all checks.
        outputs: Comparisons of outputs, which have pictures and more numbers.
    """
    blocks: list[Block] = [TableBlock("What was checked", ("", ""), list(facts.items()), prose=True)]
    blocks += [result_table(result) for result in results]
    for report in outputs:
        blocks += _output_blocks(report)
    for times in _latencies(results):
        note = "The runs were interleaved in one process, in an order shuffled for each round."
        blocks.append(ImageBlock("Time of one image", latency_histogram(times), "Histogram of run times", note))
    write_page(path, title, summary(results), blocks)


def result_table(result: Result) -> TableBlock:
    """One row per item."""
    shows = any(item.kind for item in result.items)
    rows = [
        (item.title, verdict(item), *((item.kind or "",) if shows else ()), item.measured, item.required)
        for item in result.items
    ]
    columns = ("", "", *(("kind",) if shows else ()), "measured", "required")
    note = "; ".join(f"{what}: sha256 {value}" for what, value in result.sha256.items())
    return TableBlock(result.title, columns, rows, note, prose=True)


def _output_blocks(report: OutputsReport) -> list[Block]:
    blocks: list[Block] = [_parts(report)]
    if report.swaps:
        rows = [(f"{s.first} → {s.second}", s.pixels, s.margin) for s in report.swaps[:MAX_SWAPS]]
        note = "The margin is how far apart the two classes were in the reference, as a share of the logit range."
        blocks.append(TableBlock("Pixels that changed their class", ("", "pixels", "median margin"), rows, note))
    if report.worst is not None:
        text = "The image with the largest error, the error of every pixel, and the pixels of another class"
        blocks.append(ImageBlock(f"Worst image: {report.name_b}", error_map(report.worst), text))
    edges, counts = report.histogram
    if sum(counts):
        picture = error_histogram(edges, counts, report.limits.error)
        blocks.append(ImageBlock(f"Errors: {report.name_b}", picture, "Histogram of errors on logarithmic axes"))
    return blocks


def _parts(report: OutputsReport) -> TableBlock:
    rows = []
    for part in PARTS:
        numbers = report.parts[part]
        if part == "all" or numbers.classes:
            errors = [f"{value:.1e}" for value in (numbers.errors.p50, numbers.errors.p99, numbers.errors.max)]
            ious = [None if math.isnan(value) else 100 * value for value in (numbers.miou_a, numbers.miou_b)]
            rows.append((part, len(numbers.classes), *errors, _percent(numbers.agreement.share), *ious))
    columns = ("classes", "number", "median error", "99 %", "largest", "same class", "mIoU before", "mIoU after")
    return TableBlock(f"Old and new classes: {report.name_b} against {report.name_a}", columns, rows)


def _percent(share: float) -> str | None:
    return None if math.isnan(share) else f"{share:.4%}"


def _latencies(results: Sequence[Result]) -> list[dict[str, list[float]]]:
    return [item.detail["times_ms"] for result in results for item in result.items if item.detail.get("times_ms")]


def as_document(results: Sequence[Result], outputs: Sequence[OutputsReport] = ()) -> dict[str, object]:
    """JSON-ready; comparisons of outputs with all their numbers."""
    detailed = {report.as_result().title: report.as_document() for report in outputs}
    listed = [{**detailed.get(result.title, {}), **result.as_document()} for result in results]
    warnings = [item.measured for result in results for item in result.items if item.warning]
    return {
        "ok": all(result.ok for result in results),
        "not_checked": _not_checked(results),
        "warnings": warnings,
        "results": listed,
    }


def error_map(worst: WorstImage) -> bytes:
    """The image, the error of its logits on a logarithmic scale, and the pixels with another class."""
    panels = 2 + (worst.errors is not None)
    figure = make_figure((4.2 * panels, 3.4))
    axes = figure.subplots(1, panels)
    axes[0].imshow(worst.pixels)
    axes[0].set_title(worst.name, fontsize=9)
    if worst.errors is not None:
        drawn = axes[1].imshow(np.log10(np.maximum(worst.errors, MIN_DRAWN_ERROR)), cmap="inferno", vmin=-8, vmax=-1)
        axes[1].set_title("largest error, share of the logit range", fontsize=9)
        bar = figure.colorbar(drawn, ax=axes[1], shrink=0.8, ticks=[-8, -6, -4, -2])
        bar.ax.set_yticklabels([f"1e{tick}" for tick in (-8, -6, -4, -2)])
    axes[-1].imshow(worst.differs, cmap="Reds", vmin=0, vmax=1)
    axes[-1].set_title("another class" if worst.differs.any() else "another class: nowhere", fontsize=9)
    for one in axes:
        one.set_axis_off()
    return as_png(figure)


def error_histogram(edges: Sequence[float], counts: Sequence[int], limit: float | None) -> bytes:
    """Histogram of the errors of all logits; the dashed line is the limit."""
    figure = make_figure((6, 2.6))
    axes = figure.subplots()
    upper = np.maximum(np.asarray(edges, float), MIN_DRAWN_ERROR)
    finite = np.isfinite(upper)
    axes.bar(upper[finite], np.asarray(counts)[finite], width=0.4 * upper[finite], color=COLOURS[0])
    axes.set_xscale("log")
    axes.set_yscale("log")
    if limit is not None:
        axes.axvline(limit, color=COLOURS[1], linestyle="--", label="allowed")
        axes.legend(frameon=False, loc="upper right")
    axes.set_xlabel("error, share of the logit range")
    axes.set_ylabel("logits")
    return as_png(figure)


def latency_histogram(milliseconds: Mapping[str, Sequence[float]]) -> bytes:
    """Histogram of the times of interleaved runs, one colour per network; the slowest 1 % is left out."""
    figure = make_figure((6, 2.6))
    axes = figure.subplots()
    everything = np.concatenate([np.asarray(times) for times in milliseconds.values()])
    bins = np.linspace(everything.min(), max(np.quantile(everything, 0.99), everything.min() * 1.01), 40).tolist()
    for index, (name, times) in enumerate(milliseconds.items()):
        axes.hist(times, bins, alpha=0.6, label=f"{name}, median {np.median(times):.1f} ms", color=COLOURS[index])
    axes.set_xlabel("one image, ms")
    axes.set_ylabel("runs")
    axes.legend(frameon=False, loc="upper right")
    return as_png(figure)
