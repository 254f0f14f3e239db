"""Every command of the README, as it stands there, in a folder that has what it names; only made smaller."""

import shutil
from pathlib import Path

import numpy as np
import odd_networks
import pytest
import torch
from clips import make_clip
from commands import call, write_coco
from foreign_graph import theirs
from layouts import stripes, write_voc
from official_models import TINY
from official_recipe import state_dict
from pages import ROOT, blocks, commands
from sites import write_sample

from rcil.checkpoint.file import save
from rcil.model.architecture import Architecture
from rcil.model.metadata import Metadata, class_table
from rcil.nn import begin_step, build

NAMES = ["background", "road", "person", "car", "forklift"]
README = ROOT / "README.md"
LINES = [" ".join(words) for words in commands(README)]
SMALL_TASK = [
    "network={backbone: resnet18, width: 4, blocks: [1, 1, 1, 1], head_width: 8}",
    "training.epochs=[1, 1]",
    "training.crop=64",
    "training.epoch_images=8",
    "training.workers=0",
]
SMALLER = {
    "rcil add-class": [
        "--epochs",
        "1",
        "--batch",
        "2",
        "--crop",
        "64",
        "--workers",
        "0",
        "--max-drop",
        "100",
        "--min-new",
        "0",
    ],
    "rcil train": [word for key in SMALL_TASK for word in ("--set", key)],
    "rcil compare": [word for key in (*SMALL_TASK, "training.batch=2") for word in ("--set", key)],
    "rcil-export step1.safetensors": ["--size", "64x96", "--rounds", "0"],
    "rcil-export adopt": ["--size", "64x96"],
    "rcil-export bench": ["--rounds", "2", "--warmup", "0", "--size", "64x96", "--threads", "1"],
    "rcil-export check": ["--no-bisect"],
}
"""What is added, last, to commands that begin so."""
FREE = {
    "rcil-export adopt": "model.onnx",
    "rcil data convert": "my_site",
    "rcil prelabel": "my_site",
    "rcil import": "step0.safetensors",
    "rcil attach my_package:build": "model.safetensors",
    "rcil train": "run",
}
"""What must not be there yet."""
ELSEWHERE = {"rtsp://camera.local/1": "yard.mp4"}
"""No camera here."""


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """What the README's commands read."""
    root = tmp_path_factory.mktemp("readme")
    mask = np.zeros((64, 96), np.uint8)
    for row in range(1, 5):
        mask[8:48, 20 * row - 12 : 20 * row + 4] = row
    for split in ("train", "val"):
        for index in range(8):
            write_sample(root / "my_site", split, f"{split}_{index}", mask)
    (root / "my_site" / "classes.txt").write_text("\n".join(NAMES) + "\n")
    shutil.copytree(root / "my_site" / "images" / "train", root / "photos")
    _write_models(root)
    write_coco(root / "annotations.json", root / "photos", "forklift")
    source = Path(odd_networks.__file__).read_text()
    (root / "my_package.py").write_text(f"{source}\n\ndef build(classes):\n    return Plain(classes)\n")
    torch.save(odd_networks.Plain(4).state_dict(), root / "mine.pth")
    (root / "names.txt").write_text("\n".join(NAMES[:4]))
    (root / "task.yaml").write_text(next(b.text for b in blocks(README) if b.language == "yaml"))
    train = {f"2008_{c:02d}{index:04d}": stripes(0, c) for index in range(6) for c in range(1, 21)}
    write_voc(root / "VOC2012", {"train": train, "val": {"2007_000001": stripes(*range(21))}})
    torch.save(state_dict(TINY["keys_step0"]), root / "15-5s-voc_RCIL_overlap_0.pth")
    make_clip(root / "yard.mp4", 4)
    return root


def _write_models(root):
    torch.manual_seed(0)
    old = build(Architecture(backbone="resnet18", width=4, blocks=(1, 1, 1, 1), head_width=8), [NAMES[:4]])
    new = begin_step(old, NAMES[4:], rows="random")  # rows that start equal tie everywhere
    (root / "run").mkdir()
    for step, model in enumerate((old, new)):
        with torch.no_grad():
            model.train()(torch.randn(2, 3, 64, 64))
        metadata = Metadata(
            architecture=model.arch, classes=class_table([list(g) for g in model.classifier.steps]), step=step
        )
        for name in (f"step{step}.safetensors", f"run/step{step}.safetensors"):
            save(root / name, model.eval(), metadata)
    shutil.copy(root / "step0.safetensors", root / "model.safetensors")
    theirs(root / "theirs.onnx", size=(64, 96), classes=4)
    for step, place in enumerate(("before", "deployed")):
        graph = root / place / "model.onnx"
        done = call("rcil-export onnx", str(root / f"step{step}.safetensors"), "-o", str(graph), "--size", "64x96")
        assert done.code == 0, done.err
    shutil.copy(root / "before" / "model.onnx", root / "model.onnx")


@pytest.fixture
def here(folder, tmp_path, monkeypatch):
    shutil.copytree(folder, tmp_path, dirs_exist_ok=True)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    return tmp_path


def test_there_are_commands():
    assert len(LINES) > 12


@pytest.mark.parametrize("line", [line for line in LINES if not line.startswith("rcil-serve http")])
def test_it_works(line, here):
    for start, place in FREE.items():
        if line.startswith(start):
            shutil.rmtree(here / place) if (here / place).is_dir() else (here / place).unlink()
    added = [word for start, words in SMALLER.items() if line.startswith(start) for word in words]
    script, *words = (ELSEWHERE.get(word, word) for word in line.split())
    done = call(script, *words, *added)
    assert done.code == 0, done.err
    output = [words[place + 1] for place, word in enumerate(words) if word == "-o"]
    assert "--dry-run" in words or all((here / name).exists() for name in output)


def test_the_server_starts_and_listens(here, monkeypatch):
    (line,) = [line for line in LINES if line.startswith("rcil-serve http")]
    listening = []

    async def serve(server, sockets):
        listening.extend(place.getsockname() for place in sockets)

    monkeypatch.setattr("uvicorn.Server.serve", serve)
    script, *words = line.split()
    done = call(script, *words, "--port", "0")
    assert done.code == 0, done.err
    assert listening[0][0] == "127.0.0.1"
