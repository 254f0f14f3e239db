"""Every command of the three scripts with a call that works, in a small world of files, and a way to make the call."""

from __future__ import annotations

import contextlib
import io
import json
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import torch
import yaml
from clips import make_clip
from foreign_graph import theirs
from keys import make_keys
from official_models import TINY
from official_recipe import state_dict
from served import write_model
from sites import make_site
from typer.main import get_command

import rcil.cli.app
import rcil_export.cli.app
import rcil_serve.cli.app
from rcil.checkpoint.file import save
from rcil.cli.console import run
from rcil.core.signing import sign
from rcil.model.architecture import Architecture
from rcil.model.metadata import Metadata, class_table
from rcil.nn import build
from tools.site.commands import leaves

SCRIPTS = {
    name: get_command(module.app)
    for name, module in (
        ("rcil", rcil.cli.app),
        ("rcil-export", rcil_export.cli.app),
        ("rcil-serve", rcil_serve.cli.app),
    )
}
FAST = "--size 48x64 --rounds 0 --target onnx"
QUICK = "--epochs 1 --batch 2 --crop 64 --workers 0 --max-drop 100 --min-new 0"
COMMANDS = {
    "rcil info": "@model.safetensors",
    "rcil attach": "odd_networks:Plain -o %made.safetensors",
    "rcil import": "@weights.pth -o %made.safetensors",
    "rcil train": "@task.yaml -o %run",
    "rcil compare": "@task.yaml -o %table --methods fine-tuning",
    "rcil classify": "@classify.yaml -o %run",
    "rcil eval": "@model.safetensors --data @site -o %report.json",
    "rcil add-class": f"--from @model.safetensors --data @site --class cone -o %taught {QUICK}",
    "rcil pick": "@clip.mp4 --from @model.safetensors -o %picked --count 2",
    "rcil prelabel": "--from @model.safetensors --images @site -o %labelled",
    "rcil refit": "--from @model.safetensors --data @site -o %fitted.safetensors",
    "rcil doctor": "",
    "rcil demo": "-o %demo --quick",
    "rcil data check": "@site --sheet %sheet.png",
    "rcil data show": "@site -o %overlays",
    "rcil data convert": "coco @coco.json %converted --images @photos",
    "rcil data export": "@site %labelling --to cvat",
    "rcil data make-site": "%yard --count 5 --size 48x64 --frames 0",
    "rcil presets": "",
    "rcil presets show": "voc-15-1-overlapped",
    "rcil-export export": f"@model.safetensors -o %deployed {FAST} --images @site --previous @model.safetensors",
    "rcil-export fold": "@model.safetensors -o %folded.safetensors",
    "rcil-export onnx": "@model.safetensors -o %made.onnx --size 48x64",
    "rcil-export engine": "@model.onnx -o %made.engine",
    "rcil-export adopt": "@theirs.onnx -o %adopted.onnx --names @names.txt",
    "rcil-export prelabel": "--from @model.onnx --images @photos -o %labelled",
    "rcil-export check": "@model.safetensors @fixed.onnx --images @site --html %check.html --no-bisect",
    "rcil-export verify": "@fixed.onnx @model.safetensors",
    "rcil-export sign": "@other.onnx --key @key.pem",
    "rcil-export verify-signature": "@model.onnx --trust @key.pub",
    "rcil-export bench": "@model.onnx --rounds 2 --warmup 0 --size 48x64 -o %bench.json",
    "rcil-export inspect": "@model.onnx",
    "rcil-serve video": "@clip.mp4 -m @model.onnx -o %seen.mp4 --jsonl %frames.jsonl --timeline %areas.png",
    "rcil-serve images": "@photos -m @model.onnx -o %seen",
    "rcil-serve diff": "@model.onnx @other.onnx @clip.mp4 -o %changes",
    "rcil-serve watch": "@clip.mp4 -m @model.onnx --previous @other.onnx --events %events.jsonl",
    "rcil-serve http": "-m @model.onnx --previous @other.onnx",
    "rcil-serve overlay": "@image.png @mask.png -m @model.safetensors -o %overlay.png",
}
"""@ marks what is read, % what is written."""


@dataclass(frozen=True)
class Done:
    """How a call ended."""

    code: int
    out: str
    err: str


def call(command: str, *words: str) -> Done:
    """Call a command as its script does, in this process and folder; what the script would not explain is raised."""
    script, *inner = command.split()
    out, err, code = io.StringIO(), io.StringIO(), 0
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            run(lambda: SCRIPTS[script]([*inner, *words], prog_name=script))
        except SystemExit as stop:
            code = int(stop.code or 0)
    return Done(code, out.getvalue(), err.getvalue())


def words_of(command: str) -> list[str]:
    """The words of the call that works."""
    return [word.lstrip("@%") for word in COMMANDS[command].split()]


def all_commands() -> dict[str, Any]:
    """The commands of the three scripts by name."""
    return {name: leaf for script, top in SCRIPTS.items() for name, leaf in leaves(top, script)}


def make_world(root: Path) -> Path:
    """All files that `COMMANDS` reads."""
    make_site(root / "site", images=4)
    (root / "photos").mkdir()
    for path in (root / "site" / "images" / "train").iterdir():
        shutil.copy(path, root / "photos")
    torch.manual_seed(0)
    arch = Architecture(backbone="resnet18", width=4, blocks=(1, 1, 1, 1), head_width=8)
    network = build(arch, [["background", "ball"]])
    metadata = Metadata(architecture=network.arch, classes=class_table([["background", "ball"]]))
    save(root / "model.safetensors", network, metadata)
    theirs(root / "theirs.onnx")
    (root / "names.txt").write_text("background\nball\ncone\n")
    write_model(root / "model.onnx", step=1)
    write_model(root / "other.onnx", step=0)
    sign(root / "model.onnx", make_keys(root).private)
    make_clip(root / "clip.mp4", 4)
    _write_pictures(root)
    _write_tasks(root)
    write_coco(root / "coco.json", root / "photos", "cone")
    torch.save(state_dict(TINY["keys_step0"]), root / "weights.pth")
    done = call("rcil-export onnx", str(root / "model.safetensors"), "-o", str(root / "fixed.onnx"), "--size", "64x96")
    assert done.code == 0, done.err
    return root


def _write_pictures(root: Path) -> None:
    cv2.imwrite(str(root / "image.png"), np.full((40, 60, 3), (10, 20, 30), np.uint8))
    cv2.imwrite(str(root / "mask.png"), np.ones((40, 60), np.uint8))


def write_coco(path: Path, photos: Path, label: str) -> None:
    """A box of one class in every image of a folder."""
    names = sorted(photo.name for photo in photos.iterdir())
    box = {"category_id": 1, "segmentation": [[5, 5, 20, 5, 20, 20, 5, 20]], "iscrowd": 0}
    document = {
        "images": [{"id": i, "file_name": name, "width": 96, "height": 64} for i, name in enumerate(names)],
        "categories": [{"id": 1, "name": label}],
        "annotations": [{"id": i, "image_id": i, **box} for i in range(len(names))],
    }
    path.write_text(json.dumps(document))


def _write_tasks(root: Path) -> None:
    task = {
        "name": "tiny",
        "recipe": "paper",
        "data": {"root": "site"},
        "protocol": {"steps": [["ball"], ["cone"]]},
        "network": {"backbone": "resnet18", "width": 4, "blocks": [1, 1, 1, 1], "head_width": 8},
        "training": {"epochs": [1, 1], "lr": [0.05, 0.02], "batch": 2, "crop": 64, "workers": 0},
    }
    (root / "task.yaml").write_text(yaml.safe_dump(task))
    for split in ("train", "val"):
        for name, grey in (("dark", 30), ("light", 220)):
            folder = root / "greys" / split / name
            folder.mkdir(parents=True)
            for index in range(3):
                cv2.imwrite(str(folder / f"{index}.png"), np.full((16, 16, 3), grey + index, np.uint8))
    classify = {
        "name": "greys",
        "data": {"kind": "folder", "root": "greys", "size": 16},
        "protocol": {"first": 2, "later_steps": 0},
        "network": {"width": 2, "blocks": [1, 1, 1, 1]},
        "training": {"iterations": [2, 1], "tune_iterations": 0, "batch": 4, "shift": 1},
    }
    (root / "classify.yaml").write_text(yaml.safe_dump(classify))
