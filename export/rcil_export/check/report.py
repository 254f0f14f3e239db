"""Results of checks as text, and as one self-contained page."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path

from rcil.report.html import Block, ImageBlock, TableBlock, write_page
from rcil_export.check.outputs_report import PARTS, OutputsReport
from rcil_export.check.plots import error_histogram, error_map, latency_histogram
from rcil_export.check.result import Item, Result

MOST_SWAPS = 12


def verdict(item: Item) -> str:
    """One word."""
    if item.undecided:
        return "undecided"
    return "warn" if item.warning else {True: "pass", False: "FAIL", None: "–"}[item.passed]


def as_text(results: Sequence[Result]) -> str:
    """A short table: what was checked, what was found, what was required."""
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
    """One line: what failed, what calls for a look, and what nobody checked."""
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
    """The page.

    Args:
        path: The .html file.
        title: Its heading.
        facts: What was checked: files, sizes, versions.
        results: Everything that was found.
        outputs: Comparisons that have pictures and more numbers.
    """
    blocks: list[Block] = [TableBlock("What was checked", ("", ""), list(facts.items()), prose=True)]
    blocks += [result_table(result) for result in results]
    for report in outputs:
        blocks += _output_blocks(report)
    for times in _latencies(results):
        note = "Runs took turns in one process, in an order shuffled anew each round."
        blocks.append(ImageBlock("Time of one image", latency_histogram(times), "Histogram of run times", note))
    write_page(path, title, summary(results), blocks)


def result_table(result: Result) -> TableBlock:
    """One line for each thing that was checked."""
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
        rows = [(f"{s.first} → {s.second}", s.pixels, s.margin) for s in report.swaps[:MOST_SWAPS]]
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
    """JSON-ready; comparisons of outputs with every number behind them."""
    detailed = {report.as_result().title: report.as_document() for report in outputs}
    listed = [{**detailed.get(result.title, {}), **result.as_document()} for result in results]
    warnings = [item.measured for result in results for item in result.items if item.warning]
    return {
        "ok": all(result.ok for result in results),
        "not_checked": _not_checked(results),
        "warnings": warnings,
        "results": listed,
    }
