"""Tables of docs/results made so small that each runs in seconds; they learn nothing."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
from sites import write_sample

from tools.results.cells import Table
from tools.results.settings import CAMVID_CLASSES, SITE_CLASSES

NETWORK = {"backbone": "resnet18", "blocks": [1, 1, 1, 1], "width": 8, "head_width": 8, "output_stride": 8}
TRAINING = {
    "epochs": [1, 1],
    "lr": [0.02, 1e-6],  # one iteration leaves features to which no sensible rows can be fitted
    "batch": 2,
    "epoch_images": 2,
    "crop": 32,  # maps of 4x4, which PLOP cuts into as many cells
    "workers": 0,
    "held_out": 0.4,
}
CLASSES = {
    "camvid": CAMVID_CLASSES,
    "site": SITE_CLASSES,
    "voc": ("cat", "chair", "cow", "dog", "horse", "person", "sheep", "sofa"),
}


def tiny(table: Table, rows: int, steps: int | None = None) -> Table:
    """The first rows and the first replica of a table on one iteration a step.

    Args:
        table: A real one.
        rows: How many of its rows.
        steps: How many of its steps; None: all.
    """
    name, changes = next(iter(table.replicas.items()))
    cut = {k: v[:steps] if k in ("protocol.steps", "protocol.domain_steps") else v for k, v in changes.items()}
    kept = {title: {**row} for title, row in list(table.rows.items())[:rows]}
    for row in kept.values():
        row.pop("training.epochs", None)
    base = {"network": NETWORK, "training": TRAINING}
    if protocol := table.base.get("protocol"):
        base["protocol"] = {**protocol, "steps": protocol["steps"][:steps]}
    return replace(table, base=base, rows=kept, replicas={name: cut}, pictures=())


def tiny_data(folder: Path, domains: tuple[str, ...]) -> None:
    """Images of 48x48 with a square of a single class each, so that every setting finds some for every step."""
    classes = CLASSES[folder.name.split("-")[0]]
    recorded = {}
    for split, count in (("train", 6), ("val", 1)):
        for class_id in range(1, len(classes) + 1):
            for index in range(count):
                mask = np.zeros((48, 48))
                mask[8:40, 8:40] = class_id
                name = f"{split}_{class_id}_{index}"
                write_sample(folder, split, name, mask)
                recorded[f"{split}/{name}"] = domains[index % len(domains)] if domains else ""
    (folder / "classes.txt").write_text("\n".join(("background", *classes)) + "\n")
    if domains:
        (folder / "dataset.json").write_text(json.dumps({"image_domains": recorded}))
