"""The table of `rcil add-class` without options: `python -m tools.results.add_class --camvid FOLDER --voc FOLDER`.

Every task takes a model that knows some classes, a few images whose masks name only the new class, and the command
without any option. The reference has complete masks of the same images, trains from the same checkpoint in the same
time without branches and distillation, and refits its rows too. Both are tested on the complete masks of the split
`val`. Finished runs are not repeated, and interrupted ones continue.

    rcil train docs/results/camvid-base.yaml -o camvid-base --set data.root=CAMVID
    python -m tools.results.add_class --camvid CAMVID --camvid-model camvid-base/step0.safetensors
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from rcil.core.documents import parse_json, write_json
from rcil.core.files import building, replacing, write_file
from rcil.core.masks import read_mask, write_mask
from rcil.data.scan import scan
from rcil.data.site import palette_of, read_site
from rcil.data.types import IGNORE, Sample, SegmentationData

ALL_LABELS = ("method.options.parallel=false", "method.options.spatial=false", "method.options.channel=false")


@dataclass(frozen=True)
class Task:
    """One class to add."""

    data: str
    """`camvid` or `voc`."""
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
                stem = Path(sample.name).name
                write_mask(site / "masks" / split / f"{stem}.png", mask, palette)
                _copy(sample, site / "images" / split / f"{stem}{sample.image.suffix}")


def _copy(sample: Sample, target: Path) -> None:
    with replacing(target) as part:
        part.write_bytes(sample.image.read_bytes())


def run(model: Path, site: Path, name: str, output: Path, options: Sequence[str]) -> dict[str, Any]:
    """Run the command, or read the report of a finished run."""
    report = output / "report.json"
    if not report.exists():
        command = [sys.executable, "-m", "rcil", "add-class", "--from", str(model), "--data", str(site)]
        command += ["--class", name, "-o", str(output), *options]
        command += ["--resume"] if (output / "add_class.yaml").exists() else []
        done = subprocess.run(command, check=False)
        if not report.exists():
            raise SystemExit(f"{' '.join(command)} ended with exit code {done.returncode}")
    document: dict[str, Any] = parse_json(report.read_text(encoding="utf-8"))
    return document


def row(task: Task, found: dict[str, Any], reference: dict[str, Any]) -> dict[str, Any]:
    """The numbers of one task, in percent and points."""
    named = [c for c in found["old_classes"][1:] if c["drop"] is not None]
    worst = max(named, key=lambda c: c["drop"])
    (new,), (best,) = found["new_classes"], reference["new_classes"]
    (amount,) = found["preflight"]["new_classes"]
    return {
        **asdict(task),
        "images": amount["images"],
        "iterations": iterations(found),
        "reference_iterations": iterations(reference),
        "iou": new["iou"],
        "reference_iou": best["iou"],
        "mean_drop": sum(c["drop"] for c in named) / len(named),
        "largest_drop": worst["drop"],
        "largest_drop_of": worst["name"],
        "verdict": found["verdict"],
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
        "option. The training masks name only the new class. *All labels* is what complete masks of the same images "
        "reach from the same checkpoint in the same minutes, without branches and distillation, with refitted rows as "
        "well. IoU in % and drops in points on the complete masks of the split `val`; drops are of named old classes.",
        "",
        "```",
        "rcil train docs/results/camvid-base.yaml -o camvid-base --set data.root=CAMVID",
        "python -m tools.results.add_class --camvid CAMVID --camvid-model camvid-base/step0.safetensors",
        "```",
        "",
        "| new class | data | images | iterations | IoU | all labels | share | mean drop | largest drop | verdict |",
        "|---|---|---|---|---|---|---|---|---|---|",
    ]
    for each in rows:
        share = each["iou"] / each["reference_iou"] if each["reference_iou"] else 1.0
        lines.append(
            f"| {each['name']} | {each['data']} | {each['images']} | {each['iterations']} | {each['iou']:.1f} "
            f"| {each['reference_iou']:.1f} | {share:.0%} | {each['mean_drop']:.1f} "
            f"| {each['largest_drop']:.1f} ({each['largest_drop_of']}) | {each['verdict']} |"
        )
    return "\n".join([*lines, ""])


def main() -> None:
    """Run all tasks whose data is given, and write add-class.md and add-class.json."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for kind in ("camvid", "voc"):
        parser.add_argument(f"--{kind}", type=Path, help=f"site folder of {kind}")
        parser.add_argument(f"--{kind}-model", type=Path, help="checkpoint that knows other classes of it")
    parser.add_argument("--only", nargs="*", help="names of the classes to add")
    parser.add_argument("--minutes", help="time budget of every run (the command's default)")
    parser.add_argument("--runs", type=Path, default=Path("results/add-class"), help="folder for sites and runs")
    parser.add_argument("--pages", type=Path, default=Path("docs/results"), help="folder for the page")
    arguments = parser.parse_args()
    options = ["--minutes", arguments.minutes] if arguments.minutes else []
    extra = [word for setting in ALL_LABELS for word in ("--set", setting)]
    rows = []
    for task in TASKS:
        root, model = getattr(arguments, task.data), getattr(arguments, f"{task.data}_model")
        if root is None or (arguments.only and task.name not in arguments.only):
            continue
        data, folder = read_site(root, record=False), arguments.runs / f"{task.data}-{task.name}"
        reports = []
        for kind, more in (("add-class", []), ("all-labels", extra)):
            site = folder / f"{kind}-site"
            make_site(data, task.name, task.images, site, complete=kind == "all-labels")
            reports.append(run(model, site, task.name, folder / kind, [*options, *more]))
        rows.append(row(task, reports[0], reports[1]))
        print(json.dumps(rows[-1]), flush=True)
    write_json(arguments.pages / "add-class.json", {"rows": rows})
    write_file(arguments.pages / "add-class.md", page(rows))


if __name__ == "__main__":
    main()
