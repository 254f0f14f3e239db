r"""The table of `rcil add-class` without options: `python -m tools.results.add_class --camvid FOLDER --voc FOLDER`.

Every task takes a model that knows some classes, a few images whose masks name only the new class, and the command
without any option. The reference has complete masks of the same images, trains from the same checkpoint in the same
time without branches and distillation, and refits its rows too. Both are tested on the complete masks of the split
`val`. Finished runs are not repeated, interrupted ones continue, and the page keeps the rows of tasks that are not
asked for.

    rcil train docs/results/camvid-base.yaml -o camvid-base --set data.root=CAMVID
    rcil train docs/results/voc-animals-base.yaml -o voc-base --set data.root=VOC
    python -m tools.results.add_class --camvid CAMVID --camvid-model camvid-base/step0.safetensors \
        --voc VOC --voc-model voc-base/step0.safetensors
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from rcil.core.documents import parse_json, write_json
from rcil.core.files import building, sha256_of, write_file
from rcil.core.masks import read_mask, write_mask
from rcil.data.scan import scan
from rcil.data.site import palette_of, read_site
from rcil.data.types import IGNORE, SegmentationData

KINDS = ("camvid", "voc")
ALL_LABELS = ("method.options.parallel=false", "method.options.spatial=false", "method.options.channel=false")
"""Settings of the reference. Background still takes the old model's probabilities."""
MIN_SHARE, MAX_MEAN_DROP, MAX_DROP = 0.8, 1.0, 3.0
"""The goals: the share of the reference's IoU, and the points that named old classes lose on average and at most."""


@dataclass(frozen=True)
class Task:
    """One class to add."""

    data: str
    """One of `KINDS`."""
    name: str
    images: int
    """Maximum number of training images."""


TASKS = (
    Task("camvid", "car", 120),
    Task("camvid", "bicyclist", 60),
    Task("camvid", "pole", 100),
    Task("camvid", "pedestrian", 12),
    Task("voc", "horse", 100),
    Task("voc", "sofa", 90),
    Task("voc", "person", 300),
)


def make_site(source: SegmentationData, name: str, count: int, target: Path, *, complete: bool) -> None:
    """Copy up to `count` training images with the class, evenly spread, and the whole split `val`.

    Training masks keep only the class and ignored pixels unless they are `complete`.
    """
    if target.exists():
        return
    value = source.names.index(name)
    found = [content.sample for content in scan(source, source.splits["train"]) if value in content.present]
    chosen = [found[round(i)] for i in np.linspace(0, len(found) - 1, min(count, len(found)))]
    palette = palette_of(source.classes)
    with building(target) as site:
        write_file(site / "classes.txt", "".join(f"{each}\n" for each in source.names))
        for split, samples in (("train", chosen), ("val", source.splits["val"])):
            for sample in samples:
                mask = read_mask(sample.mask)
                if split == "train" and not complete:
                    mask = np.where(np.isin(mask, (value, IGNORE)), mask, np.uint8(0))
                write_mask(site / "masks" / split / f"{sample.name}.png", mask, palette)
                write_file(site / "images" / split / f"{sample.name}{sample.image.suffix}", sample.image.read_bytes())


def run(model: Path, site: Path, name: str, output: Path, options: Sequence[str]) -> dict[str, Any]:
    """Run the command, or read the report of a finished run; the report gets the `seconds` of all attempts."""
    report, record = output / "report.json", output.with_name(f"{output.name}.seconds.json")
    with _timed(record, {"model_sha256": sha256_of(model), "options": list(options)}, finished=report.exists()):
        if not report.exists():
            command = [sys.executable, "-m", "rcil", "add-class", "--from", str(model), "--data", str(site)]
            command += ["--class", name, "-o", str(output), *options]
            command += ["--resume"] if (output / "add_class.yaml").exists() else []
            done = subprocess.run(command, check=False)
            if not report.exists():
                raise SystemExit(f"{' '.join(command)} ended with exit code {done.returncode}")
    times = parse_json(record.read_text(encoding="utf-8"))
    return {**parse_json(report.read_text(encoding="utf-8")), **times}


@contextmanager
def _timed(record: Path, facts: dict[str, Any], *, finished: bool) -> Iterator[None]:
    """Add the wall time and the processor time of the block to the record; raises if it is one of another run."""
    if finished and not record.exists():
        raise SystemExit(f"{record} is missing: delete the run beside it to repeat it")
    earlier = parse_json(record.read_text(encoding="utf-8")) if record.exists() else {**facts, "seconds": 0.0, "cpu": 0}
    if any(earlier[key] != value for key, value in facts.items()):
        raise SystemExit(f"{record.parent} has runs with another model or other options: choose another --runs")
    wall, cpu = time.perf_counter(), sum(os.times()[:4])
    try:
        yield
    finally:
        if not finished:
            spent = {"seconds": time.perf_counter() - wall, "cpu": sum(os.times()[:4]) - cpu}
            write_json(record, {**facts, **{key: round(earlier[key] + value, 1) for key, value in spent.items()}})


def row(task: Task, found: dict[str, Any], reference: dict[str, Any]) -> dict[str, Any]:
    """The numbers of one task, in percent and points."""
    named = [c for c in found["old_classes"][1:] if c["drop"] is not None]
    worst = max(named, key=lambda c: c["drop"])
    (new,), (best,) = found["new_classes"], reference["new_classes"]
    (amount,) = found["preflight"]["new_classes"]
    share = new["iou"] / best["iou"] if best["iou"] else None
    mean = sum(c["drop"] for c in named) / len(named)
    return {
        **asdict(task),
        "images": amount["images"],
        "minutes": found["recipe"].get("minutes", {}).get("value"),
        "iterations": iterations(found),
        "reference_iterations": iterations(reference),
        "seconds": found["seconds"],
        "reference_seconds": reference["seconds"],
        "cpu_seconds": found["cpu"],
        "iou": new["iou"],
        "reference_iou": best["iou"],
        "share": share,
        "mean_drop": mean,
        "largest_drop": worst["drop"],
        "largest_drop_of": worst["name"],
        "verdict": found["verdict"],
        "goals": {
            "share": share is None or share >= MIN_SHARE,
            "mean": mean <= MAX_MEAN_DROP,
            "largest": worst["drop"] <= MAX_DROP,
        },
    }


def iterations(report: dict[str, Any]) -> int:
    """Iterations of a run whose schedule was derived."""
    settings = {key: entry["value"] for key, entry in report["recipe"].items()}
    return int(settings["training.epochs"][-1] * (settings["training.epoch_images"] // settings["training.batch"]))


def page(rows: Sequence[dict[str, Any]]) -> str:
    """The page in Markdown."""
    lines = [
        "# `rcil add-class` without options",
        "",
        "Every row adds one class with `rcil add-class --from MODEL --data SITE --class NAME -o OUT` and no other "
        "option, unless the row names one. "
        "The training masks name only the new class. *All labels* is what complete masks of the same images "
        "reach from the same checkpoint in the same minutes, without branches and cube distillation, with refitted "
        "rows as well; background takes the old model's probabilities in both. IoU in % and drops in points on the "
        "complete masks of the split `val`; drops are of named old classes. *Seconds* is the wall time of the whole "
        "command, and *cores* is how many processor cores it had of that time on average.",
        "",
        "The models were trained on five or six classes with the recipe for site tasks, by "
        "[camvid-base.yaml](camvid-base.yaml) and [voc-animals-base.yaml](voc-animals-base.yaml):",
        "",
        "```",
        "rcil train docs/results/camvid-base.yaml -o camvid-base --set data.root=CAMVID",
        "rcil train docs/results/voc-animals-base.yaml -o voc-base --set data.root=VOC",
        "python -m tools.results.add_class --camvid CAMVID --camvid-model camvid-base/step0.safetensors \\",
        "    --voc VOC --voc-model voc-base/step0.safetensors",
        "```",
        "",
        "| new class | data | images | iterations (all labels) | seconds | cores | IoU | all labels | share "
        "| mean drop | largest drop | verdict |",
        "|---|---|---|---|---|---|---|---|---|---|---|---|",
    ]
    for each in rows:
        share, goals = "–" if each["share"] is None else f"{each['share']:.0%}", each["goals"]
        length = f"{each['iterations']} ({each['reference_iterations']})"
        lines.append(
            f"| {_named(each)} | {each['data']} | {each['images']} | {length} | {each['seconds']:.0f} "
            f"| {each['cpu_seconds'] / each['seconds']:.1f} "
            f"| {each['iou']:.1f} | {each['reference_iou']:.1f} | {_marked(share, goals['share'])} "
            f"| {_marked(format(each['mean_drop'], '.1f'), goals['mean'])} "
            f"| {_marked(format(each['largest_drop'], '.1f'), goals['largest'])} ({each['largest_drop_of']}) "
            f"| {each['verdict']} |"
        )
    return "\n".join([*lines, "", *_summary(rows), ""])


def _named(row: dict[str, Any]) -> str:
    """The class, with the time budget if it is not the default."""
    return f"{row['name']} (`--minutes {row['minutes']:g}`)" if row.get("minutes") else str(row["name"])


def _marked(text: str, met: bool) -> str:
    """Bold if the goal was missed."""
    return text if met else f"**{text}**"


def _summary(rows: Sequence[dict[str, Any]]) -> Iterator[str]:
    """Which tasks meet each goal."""
    goals = {
        "share": f"at least {MIN_SHARE:.0%} of all labels",
        "mean": f"a mean drop of at most {MAX_MEAN_DROP:g}",
        "largest": f"a largest drop of at most {MAX_DROP:g}",
    }
    yield "Goals, with values that miss them in bold:"
    yield ""
    for key, text in goals.items():
        missed = [each["name"] for each in rows if not each["goals"][key]]
        count = f"{len(rows) - len(missed)} of {len(rows)} tasks"
        yield f"- {text}: {count}" + (f"; missed by {', '.join(missed)}" if missed else "")
    met = [each["name"] for each in rows if all(each["goals"].values())]
    yield f"- all three: {len(met)} of {len(rows)} tasks" + (f" ({', '.join(met)})" if met else "")


def with_earlier(rows: Sequence[dict[str, Any]], document: Path) -> list[dict[str, Any]]:
    """The new rows and those of `document` for other tasks, in the order of the tasks."""
    earlier = parse_json(document.read_text(encoding="utf-8"))["rows"] if document.exists() else []
    found = {(each["data"], each["name"]): each for each in (*earlier, *rows)}
    keys = [(task.data, task.name) for task in TASKS]
    return [found[key] for key in keys if key in found]


def main(arguments: Sequence[str] | None = None) -> None:
    """Run all tasks whose data is given, and write add-class.md and add-class.json after each."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for kind in KINDS:
        parser.add_argument(f"--{kind}", type=Path, help=f"site folder of {kind}")
        parser.add_argument(f"--{kind}-model", type=Path, help="checkpoint that knows other classes of it")
    names = [task.name for task in TASKS]
    parser.add_argument("--only", nargs="+", choices=names, metavar="NAME", help=f"some of {', '.join(names)}")
    parser.add_argument("--minutes", help="time budget of every run (the command's default)")
    parser.add_argument("--runs", type=Path, default=Path("results/add-class"), help="folder for sites and runs")
    parser.add_argument("--pages", type=Path, default=Path("docs/results"), help="folder for the page")
    given = parser.parse_args(arguments)
    for kind in KINDS:
        if (getattr(given, kind) is None) != (getattr(given, f"{kind}_model") is None):
            parser.error(f"--{kind} and --{kind}-model belong together")
    chosen = [t for t in TASKS if getattr(given, t.data) is not None and t.name in (given.only or names)]
    if not chosen:
        parser.error("no task is left: give --camvid or --voc, and --only names of their tasks")
    options = ["--minutes", given.minutes] if given.minutes else []
    for task in chosen:
        new = measure(task, getattr(given, task.data), getattr(given, f"{task.data}_model"), given.runs, options)
        print(json.dumps(new), flush=True)
        rows = with_earlier([new], given.pages / "add-class.json")
        write_json(given.pages / "add-class.json", {"rows": rows})
        write_file(given.pages / "add-class.md", page(rows))


def measure(task: Task, root: Path, model: Path, runs: Path, options: Sequence[str]) -> dict[str, Any]:
    """Run the command and its reference; returns the row of the task."""
    data, folder = read_site(root, record=False), runs / f"{task.data}-{task.name}"
    extra = [word for setting in ALL_LABELS for word in ("--set", setting)]
    reports = []
    for kind, more in (("add-class", []), ("all-labels", extra)):
        site = folder / f"{kind}-site"
        make_site(data, task.name, task.images, site, complete=kind == "all-labels")
        reports.append(run(model, site, task.name, folder / kind, [*options, *more]))
    return row(task, reports[0], reports[1])


if __name__ == "__main__":
    main()
