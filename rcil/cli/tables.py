"""Tables that commands print on the terminal. Nothing here imports torch."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from rcil.cli.console import print_json
from rcil.model.adopted import AdoptedGraph
from rcil.model.architecture import STAGES, Architecture

if TYPE_CHECKING:
    from rcil.data.check import CheckReport, Problem
    from rcil.model.architecture import RC
    from rcil.model.header import Header
    from rcil.model.metadata import AnyArchitecture, LineageEntry
    from rcil.report.models import Evaluated
    from rcil.site.preflight import Preflight
    from rcil.site.run import StepPlan
    from rcil.training.estimate import StepEstimate

MAX_CHECK_PROBLEMS = 40
MAX_WARNINGS = 20
"""Warnings shown on the terminal; the report lists all."""
ONLY_ON_PAGES = ("measured by", "agreement", "pixels", "scenes")
"""Columns of the report that the terminal leaves out, so that the tables fit."""
VERDICT_COLOURS = {"accepted": "green", "uncertain": "yellow", "rejected": "red"}
Row = Sequence[str | Text]


def print_rows(columns: Sequence[str], rows: Iterable[Row | None], title: str = "", *, left: Collection[str]) -> None:
    """Print a table. Its texts are not markup: a class may be called [empty].

    Args:
        columns: The headings.
        rows: Cells from left to right; None draws a line between two rows.
        title: Title above the table.
        left: Headings of left-aligned columns; all others are right-aligned.
    """
    table = Table(title=Text(title) if title else None, box=box.SIMPLE, title_justify="left")
    for column in columns:
        table.add_column(Text(column), justify="left" if column in left else "right")
    for row in rows:
        if row is None:
            table.add_section()
        else:
            table.add_row(*(cell if isinstance(cell, Text) else Text(cell) for cell in row))
    Console().print(table)


def print_model(path: Path, header: Header) -> None:
    """Print the metadata of a checkpoint, its classes and its lineage."""
    meta = header.metadata
    table = Table(title=Text(str(path)), box=box.SIMPLE, show_header=False, title_justify="left")
    for key, value in _model_facts(header).items():
        table.add_row(key, Text(value))
    for mark, reason in (("rejected", meta.rejected), ("uncertain", meta.uncertain)):
        if reason is not None:
            style = f"bold {VERDICT_COLOURS[mark]}"
            table.add_row(Text(mark, style=style), Text(reason, style=style))
    Console().print(table)
    if meta.classes:
        classes = [(str(c.id), c.name, str(c.step), _swatch(c.colour)) for c in meta.classes]
        print_rows(("id", "name", "step", "colour"), classes, "classes", left=("id", "name", "step", "colour"))
    if meta.lineage:
        columns = ("step", "source", "parent", "seed", "metrics")
        print_rows(columns, [_lineage_row(entry) for entry in meta.lineage], "lineage", left=columns)


def _model_facts(header: Header) -> dict[str, str]:
    """The properties of a model by name."""
    meta, arch = header.metadata, header.metadata.architecture
    facts = {
        "kind": meta.kind,
        **_network_facts(arch),
        "form": "folded" if arch.folded else "plain" if arch.rc is None else _branches(arch.rc),
        "norm": "none" if arch.folded else arch.norm,
        "step": str(meta.step),
        "method": meta.method or "-",
        "parameters": f"{header.parameters:,}",
    }
    if cost := meta.cost:
        height, width = cost.size
        facts[f"MACs at {height}x{width}"] = f"{cost.macs / 1e9:.2f} G"
        facts["deployed (folded)"] = f"{cost.folded_parameters:,} parameters, {cost.folded_macs / 1e9:.2f} G MACs"
    mean, std = (" ".join(f"{value:.3f}" for value in values) for values in (meta.mean, meta.std))
    facts["input"] = f"{meta.colour_order}, mean {mean}, std {std}"
    facts["size"] = f"{header.file_bytes / 2**20:.1f} MiB"
    return facts


def _network_facts(arch: AnyArchitecture) -> dict[str, str]:
    """What kind of network it is: one of ours, or one that another library builds."""
    if isinstance(arch, Architecture):
        blocks = f" {arch.blocks}" if arch.blocks else ""
        return {"backbone": f"{arch.backbone}{blocks}, output stride {arch.output_stride}"}
    if isinstance(arch, AdoptedGraph):
        return {"network": f"{arch.graph}, an ONNX graph of another program"}
    branches = sum(unit.rc for unit in arch.units)
    return {
        "network": f"{arch.factory}, {branches} convs for branches",
        "built by": f"code of {arch.package}; needs --allow-import {arch.package}",
    }


def _branches(rc: RC) -> str:
    """The state of both branches of the RC blocks."""
    facts = [rc.mix, "old branch merged" if rc.old == "merged" else "old branch not merged"]
    if rc.frozen:
        facts.append("frozen")
    if rc.norm_after:
        facts.append("one norm after the sum")
    elif rc.new == "merged":
        facts.append("no norm in the new branch")
    if rc.stages != STAGES:
        facts.append(f"only in {' and '.join(rc.stages)}")
    return f"two branches ({', '.join(facts)})"


def _swatch(colour: tuple[int, int, int]) -> Text:
    """A block in this colour, followed by its RGB values."""
    block = Text("██ ", style="rgb({},{},{})".format(*colour))
    return block.append(" ".join(map(str, colour)), style="default")


def _lineage_row(entry: LineageEntry) -> Row:
    metrics = ", ".join(f"{name} {value:.4g}" for name, value in entry.metrics.items())
    seed = "-" if entry.seed is None else str(entry.seed)
    return str(entry.step), entry.source, (entry.parent_sha256 or "-")[:12], seed, metrics or "-"


def print_check(report: CheckReport, sheet: Path | None) -> None:
    """Print the classes of a site folder, its problems and a verdict."""
    rows = [
        (str(count.id), count.name, f"{count.pixels:,}", str(count.images), str(count.training_images))
        for count in report.counts
    ]
    print_rows(("id", "class", "pixels", "images", "training images"), rows, str(report.root), left=("class",))
    console = Console(markup=False)
    for problem in report.problems[:MAX_CHECK_PROBLEMS]:
        _print_problem(console, problem)
    if len(report.problems) > MAX_CHECK_PROBLEMS:
        console.print(f"... and {len(report.problems) - MAX_CHECK_PROBLEMS} more; --json lists all")
    errors = sum(p.severity == "error" for p in report.problems)
    images = ", ".join(f"{count} {split}" for split, count in report.images.items()) or "none"
    warnings = len(report.problems) - errors
    console.print(f"images: {images}; {errors} errors, {warnings} warnings: {report.verdict}", soft_wrap=True)
    if sheet is not None:
        console.print(f"look at {sheet}", soft_wrap=True)


def _print_problem(console: Console, problem: Problem) -> None:
    style = "red" if problem.severity == "error" else "yellow"
    text = Text(f"{problem.severity}: ", style=style) + Text(f"{problem.place}: {problem.message}")
    console.print(text, soft_wrap=True)


def print_models(models: Sequence[Evaluated]) -> None:
    """Print the IoU per class and the means, one column per model; of a single model also steps and pixels."""
    from rcil.evaluation.bootstrap import CONFIDENCE, percent_interval, scenes
    from rcil.report.models import headings, histories

    last, means = models[-1].report, ("old", "new", "all")
    rows: list[Row | None]
    if len(models) == 1:
        columns = ["class", "step", "IoU", f"{CONFIDENCE:.0%} interval", "pixels"]
        rows = [
            (c.name, str(c.step), percent(c.iou), percent_interval(c.interval) or "-", f"{c.pixels:,}")
            for c in last.classes
        ]
        rows += [None, *((f"mean, {name}", "", percent(getattr(last, name)), "", "") for name in means)]
    else:
        columns = ["class", *headings(models)]
        rows = [(c.name, *map(percent, c.iou)) for c in histories(models)]
        rows += [None, *((f"mean, {name}", *(percent(getattr(m.report, name)) for m in models)) for name in means)]
    shown = "" if last.groups is None else f" that show {scenes(last.groups)}"
    print_rows(columns, rows, f"IoU on {last.images} images{shown}, %", left=("class",))
    if len(models) == 1 and last.unknown:
        text = f"counted as background, unknown to the model: {', '.join(last.unknown)}"
        Console().print(Text(text), soft_wrap=True)


def percent(value: float | None) -> str:
    """A share as a percentage with one decimal, or a dash for NaN and None."""
    return "-" if value is None or math.isnan(value) else f"{100 * value:.1f}"


def print_preflight(found: Preflight) -> None:
    """Print warnings, what the old model sees in the background, and the training images."""
    console = Console()
    for problem in found.warnings[:MAX_WARNINGS]:
        _print_problem(console, problem)
    if len(found.warnings) > MAX_WARNINGS:
        console.print(f"... and {len(found.warnings) - MAX_WARNINGS} more warnings; report.json lists all")
    ready = found.ready
    if ready is None:
        return
    if ready.in_background:
        listed = ", ".join(f"{name} {share:.1%}" for name, share in ready.in_background.items())
        console.print(Text(f"old classes in the masks' background, by the old model: {listed}"), soft_wrap=True)
    if ready.norm_images:
        console.print(
            f"the model is folded: its norms are fitted to {ready.norm_images} images of the site", soft_wrap=True
        )
    for info in ready.new:
        images, pixels = ready.amounts[info.name]
        console.print(Text(f"new class {info.name}: {pixels:,} pixels in {images} images"), soft_wrap=True)
    source, samples = ready.evaluation
    console.print(
        f"images: {len(ready.train)} to train on, {len(ready.held_out)} held out; forgetting is measured on "
        f"{len(samples)} ({source})",
        soft_wrap=True,
    )


def print_plan(plan: StepPlan) -> None:
    """Print the chosen settings, and the time and memory that they take."""
    from rcil.training.memory import GIB

    needs = "" if plan.memory is None else f"; {plan.memory / GIB:.1f} GiB"
    Console().print(Text(f"{plan.summary}{needs}"), soft_wrap=True)


def print_report(report: dict[str, Any]) -> None:
    """Print the tables of old and new classes, the evidence, the verdict and what to do next."""
    from rcil.site.report import NEW_COLUMNS, OLD_COLUMNS, certainty, new_rows, old_rows, verdict

    for columns, rows in ((OLD_COLUMNS, old_rows(report)), (NEW_COLUMNS, new_rows(report))):
        shown = [index for index, column in enumerate(columns) if column not in ONLY_ON_PAGES]
        print_rows([columns[i] for i in shown], [[row[i] for i in shown] for row in rows], left=columns[:1])
    console = Console()
    console.print(Text(certainty(report)), soft_wrap=True)
    console.print(Text(verdict(report), style=f"bold {VERDICT_COLOURS[report['verdict']]}"), soft_wrap=True)
    for step in report["next"]:
        console.print(Text(f"next: {step['text']}"), soft_wrap=True)
        if step["command"]:
            console.print(Text(f"  {step['command']}"), soft_wrap=True)


def print_estimate(steps: Sequence[StepEstimate], *, as_json: bool = False) -> None:
    """Print the estimate of each step."""
    from rcil.training.estimate import duration
    from rcil.training.memory import GIB

    if as_json:
        print_json({"steps": [asdict(step) for step in steps]})
        return
    rows = []
    for step in steps:
        needs = f"{step.memory / GIB:.1f} GiB", f"~{duration(step.seconds)}"
        rows.append((str(step.step), ", ".join(step.teaches), str(step.images), str(step.iterations), *needs))
    columns = ("step", "teaches", "images", "iterations", "memory", "time")
    print_rows(columns, rows, "training plan", left=("teaches",))


def print_results(results: dict[str, Any], output: Path) -> None:
    """Print the mean IoU on the test split after each step."""
    means = ("old", "new", "all")
    rows = [
        (str(step["step"]), ", ".join(step["teaches"]), *(percent(step["miou"][name]) for name in means))
        for step in results["steps"]
    ]
    title = f"{results['task']}, {results['method']}: mIoU on the test split, %"
    print_rows(("step", "teaches", *means), rows, title, left=("teaches",))
    if "paper" in results:
        Console().print(f"paper: {results['paper']:.1f} for all classes after the last step")
    Console().print(Text(f"checkpoints, logs and results.json in {output}"), soft_wrap=True)


def print_demo(document: dict[str, Any], output: Path) -> None:
    """Print the IoU of every class before and after, which files to look at, and what to do next."""
    before, after = document["iou"].values()
    values = ((name, before.get(name), after[name]) for name in after)
    rows = [(name, *("-" if value is None else f"{value:.1f}" for value in found)) for name, *found in values]
    title = f"IoU on {document['evaluated_images']} images that no training saw, %"
    print_rows(("class", *document["iou"]), rows, title, left=("class",))
    console = Console(markup=False)
    export = document["export"]
    console.print(f"learned from {document['training_images']} images: {document['verdict']}", soft_wrap=True)
    passed = sum(verdict is True for verdict in export["checks"].values())
    console.print(f"exported: {export['target']}; {passed} checks passed, at exactly the cost of a plain network")
    files = ("demo.jpg", "vehicle/report.html", "export/report.html", "video.mp4", "diff/diff.html", "report.json")
    for text in (
        f"look at {', '.join(str(output / name) for name in files)}",
        "next, with the images of another site:",
        "  rcil data make-site yard --only vehicle",
        f"  rcil add-class --from {output / 'deployed.safetensors'} --data yard --class vehicle -o vehicle",
        "then with your own model and images:",
        "  rcil data check my_site",
        "  rcil add-class --from model.safetensors --data my_site --class forklift -o forklift",
        "  rcil-export forklift/model.safetensors -o delivered --images my_site --previous model.safetensors",
        "  rcil-serve video yard.mp4 --model delivered/model.onnx -o seen.mp4",
    ):
        console.print(text, soft_wrap=True)
