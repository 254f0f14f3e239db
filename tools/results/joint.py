"""The page on joint training: `python -m tools.results.joint RUN [RUN ...]`.

Each run is the folder of a joint training with the recipe for site tasks (`rcil train TASK -o RUN`). The page shows the
task, the learning curve on held-out images and the IoU of every class on the test split. It contains no image. Runs
that the page has already and that are not given again stay.
"""

from __future__ import annotations

import argparse
import csv
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import yaml

from rcil.core.documents import parse_json, write_json
from rcil.core.files import write_file
from rcil.report.plots import COLOURS, as_png, make_figure

SMOOTHING = 40
"""Iterations over which the loss is averaged in the plot."""


def read_run(folder: Path) -> dict[str, Any]:
    """The facts of one finished run: task, results of the test split, log of the training."""
    results = parse_json((folder / "results.json").read_text(encoding="utf-8"))
    task = yaml.safe_load((folder / "task.yaml").read_text(encoding="utf-8"))
    rows = list(csv.DictReader((folder / "step0" / "log.csv").read_text(encoding="utf-8").splitlines()))
    batches = [row for row in rows if not row["held_out_miou"]]
    (step,) = results["steps"]
    training = task["training"]
    return {
        "name": task["name"],
        "classes": {c["name"]: c["iou"] for c in step["classes"] if c["iou"] is not None and c["pixels"]},
        "miou": step["miou"]["all"],
        "pixel_accuracy": step["pixel_accuracy"],
        "images": step["images"],
        "iterations": len(batches),
        "pixels_per_iteration": training["batch"] * training["crop"] ** 2,
        "recipe": {key: task[key] for key in ("recipe", "network", "training")},
        "loss": [round(float(row["ce"]), 4) for row in batches],
        "held_out": [
            [(int(row["epoch"]) + 1) * int(row["iteration"]), round(float(row["held_out_miou"]), 4)]
            for row in rows
            if row["held_out_miou"]
        ],
    }


def with_earlier(runs: Sequence[dict[str, Any]], document: Path) -> list[dict[str, Any]]:
    """The runs in `document`, if it exists, each replaced by a new one of the same name, and the other new ones."""
    new = {run["name"]: run for run in runs}
    earlier = parse_json(document.read_text(encoding="utf-8"))["runs"] if document.exists() else []
    return list({**{run["name"]: run for run in earlier}, **new}.values())


def plot(runs: Sequence[dict[str, Any]]) -> bytes:
    """Loss and held-out mean IoU over the iterations."""
    figure = make_figure((9, 3.4))
    left, right = figure.subplots(1, 2)
    for colour, run in zip(COLOURS, runs, strict=False):
        loss = run["loss"]
        smooth = [sum(loss[i : i + SMOOTHING]) / len(loss[i : i + SMOOTHING]) for i in range(0, len(loss), SMOOTHING)]
        left.plot([SMOOTHING * i for i in range(len(smooth))], smooth, color=colour, label=run["name"])
        iterations, values = zip(*run["held_out"], strict=True)
        right.plot(iterations, [100 * value for value in values], "o-", color=colour, label=run["name"])
    left.set(xlabel="iteration", ylabel="cross entropy", title="training")
    right.set(xlabel="iteration", ylabel="mean IoU, %", title="held-out images")
    for axes in (left, right):
        axes.grid(alpha=0.3)
    left.legend(frameon=False)
    return as_png(figure)


def page(runs: Sequence[dict[str, Any]]) -> str:
    """The page in Markdown."""
    lines = [
        "# Joint training with the recipe for site tasks",
        "",
        "All classes at once, from ImageNet weights, with the defaults of a site task: the task files give data, "
        "classes and method only. This is the upper bound of continual training.",
        "",
        "```",
        *(f"rcil train docs/results/{run['name']}.yaml -o {run['name']} --set data.root=FOLDER" for run in runs),
        "```",
        "",
        "| task | mean IoU | pixel accuracy | test images | iterations | million pixels seen |",
        "|---|---|---|---|---|---|",
    ]
    for run in runs:
        pixels = run["iterations"] * run["pixels_per_iteration"] / 1e6
        lines.append(
            f"| {run['name']} | {100 * run['miou']:.1f} % | {100 * run['pixel_accuracy']:.1f} % | {run['images']} "
            f"| {run['iterations']} | {pixels:.0f} |"
        )
    lines += ["", "![Learning curves](joint.png)", ""]
    for run in runs:
        names = run["classes"]
        lines += [
            f"## {run['name']}, IoU in %",
            "",
            "| " + " | ".join(names) + " |",
            "|" + "---|" * len(names),
            "| " + " | ".join(f"{100 * iou:.1f}" for iou in names.values()) + " |",
            "",
        ]
    lines += ["Settings, losses and validations are in [joint.json](joint.json).", ""]
    return "\n".join(lines)


def main() -> None:
    """Write joint.md, joint.json and joint.png."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("runs", nargs="+", type=Path, metavar="RUN", help="folders of finished joint trainings")
    parser.add_argument("--pages", type=Path, default=Path("docs/results"), help="folder for the page (docs/results)")
    arguments = parser.parse_args()
    document = arguments.pages / "joint.json"
    runs = with_earlier([read_run(folder) for folder in arguments.runs], document)
    write_json(document, {"runs": runs})
    write_file(arguments.pages / "joint.png", plot(runs))
    write_file(arguments.pages / "joint.md", page(runs))


if __name__ == "__main__":
    main()
