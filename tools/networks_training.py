"""Old classes after a step, RC against fine-tuning, in networks of other libraries; fills a table of docs/networks.md.

`python -m tools.networks_training --camvid DIR -o WORK` trains small networks from random weights on tiles of CamVid: a
short step 0 on five classes, which both methods share, and a shorter step on a sixth one. It takes some minutes of one
core, and continues after an interruption. `make networks` installs the libraries.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import yaml

from rcil.core.allowed_imports import allow_imports
from rcil.core.files import write_file
from rcil.tasks.load import load_task
from rcil.training.compare import compare
from tools.networks import PAGE, SMALL, SMP
from tools.pages import filled
from tools.results.data import prepare

FIRST, LATER = ["sky", "building", "road", "tree", "car"], ["pavement"]
METHODS = ("fine-tuning", "rcil")
NETWORKS: dict[str, tuple[str, dict[str, Any]]] = {
    "unet-timm": (f"{SMP}:Unet", {**SMALL, "encoder_name": "tu-mobilenetv3_small_100", "classes": 6}),
    "linknet": (f"{SMP}:Linknet", {**SMALL, "encoder_name": "resnet18", "classes": 6}),
    "fpn": (f"{SMP}:FPN", {**SMALL, "encoder_name": "tu-mobilenetv3_small_100", "classes": 6}),
}
TRAINING: dict[str, Any] = {
    "epochs": [3, 1],
    "epoch_images": 240,
    "batch": 6,
    "crop": 80,
    "lr": [0.002, 0.001],
    "optimiser": "adamw",
    "weight_decay": 0.01,
    "scale": [0.75, 1.5],
    "focus": 0.7,
    "validate_every": 100,
    "validate_images": 4,
    "workers": 0,
    "device": "cpu",
}
"""120 iterations for step 0, 40 for the later one."""
RCIL = {"late": True, "distillation": 1.0, "gamma": 0.0001}
"""The weights that were best for one class per step on the held-out images of CamVid, as in docs/results."""


def train(name: str, data: Path, work: Path) -> dict[str, Any]:
    """Train one network with all methods; returns what `compare.json` holds."""
    factory, args = NETWORKS[name]
    document = {
        "name": name,
        "data": {"root": str(data.absolute())},
        "protocol": {"steps": [FIRST, LATER]},
        "network": {"factory": factory, "args": args},
        "method": {"name": "rcil", "options": RCIL},
        "training": TRAINING,
    }
    task = work / f"{name}.yaml"
    write_file(task, yaml.safe_dump(document))
    return compare(load_task(task), METHODS, 1, work / name)


def rows_of(name: str, document: dict[str, Any]) -> list[str]:
    """One row per method: mean IoU of old classes before and after the step, of the new class, and of all."""
    rows = []
    for method, row in document["rows"].items():
        numbers = [row["curve"][0]["first"], *(row[column] for column in ("first", "later", "all"))]
        cells = " | ".join(f"{100 * cell['mean']:.1f}" for cell in numbers)
        rows.append(f"| {name} | {method} | {cells} |")
    return rows


def main(arguments: Sequence[str] | None = None) -> None:
    """Train all or some networks, and write the table."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("names", nargs="*", metavar="NAME", help="networks to train (all)")
    parser.add_argument("--camvid", type=Path, required=True, metavar="DIR", help="site folder with CamVid")
    parser.add_argument("-o", "--output", type=Path, required=True, metavar="WORK", help="folder for data and runs")
    options = parser.parse_args(arguments)
    allow_imports([SMP])
    data = prepare("camvid", options.output, options.camvid)
    table = [
        "| network | method | old classes before | old classes after | new class | all |",
        "|---|---|---|---|---|---|",
    ]
    for name in options.names or NETWORKS:
        rows = rows_of(name, train(name, data, options.output))
        table += rows
        print("\n".join(rows), flush=True)
    write_file(PAGE, filled(PAGE.read_text(encoding="utf-8"), {"training": table}))


if __name__ == "__main__":
    main()
