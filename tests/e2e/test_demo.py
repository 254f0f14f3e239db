"""The whole chain in miniature, as `make demo` runs it."""

import json
import os
import shutil
import subprocess
import sys

import cv2
import pytest
import torch
from commands import call

from rcil.checkpoint.file import save
from rcil.demo import programs
from rcil.demo import run as demo
from rcil.model.architecture import Architecture
from rcil.model.header import read_header
from rcil.model.metadata import LineageEntry, Metadata, class_table
from rcil.nn import build

KNOWN = ["background", "road", "building", "vegetation", "person", "crate", "barrier", "cone", "sign", "ball"]


def check(said, out, page):
    """What a quick demo says and leaves."""
    assert "it was never taught vehicle" in said.replace("\n", " ")
    assert {path.name for path in out.iterdir()} == {
        "site", "deployed.safetensors", "deployed.onnx", "vehicle", "export", "report.json", "demo.jpg", "iou.png",
        "video.mp4", "video.receipt.json", "frames.jsonl", "timeline.png", "diff",
        *(["page.png"] if page else []),
    }  # fmt: skip
    assert {path.name for path in (out / "diff").iterdir()} == {
        "diff.mp4",
        "diff.html",
        "diff.json",
        "diff.receipt.json",
    }
    report = json.loads((out / "report.json").read_text())
    assert report["export"]["ok"] is True
    assert {"model.onnx", "report.html", "report.json"} <= {path.name for path in (out / "export").iterdir()}
    assert list(report["iou"]) == ["deployed model", "after add-class"]
    assert list(report["stages"]) == ["site", "add-class", "pictures", "export", "video", "page"]
    assert report["seconds"] == pytest.approx(sum(stage["seconds"] for stage in report["stages"].values()))
    taught = read_header(out / "vehicle" / "model.safetensors").metadata
    assert [c.name for c in taught.classes] == [*KNOWN, "vehicle"]
    assert [entry.source for entry in taught.lineage] == ["rcil train, demo-base", "rcil add-class"]
    assert set(report["iou"]["after add-class"]) == {c.name for c in taught.classes}
    assert cv2.imread(str(out / "demo.jpg")).shape[1] > 4 * 2 * 96


def test_the_model_that_is_shipped_knows_everything_but_the_new_class():
    metadata = read_header(demo.BASE).metadata
    assert [c.name for c in metadata.classes] == KNOWN
    assert [entry.source for entry in metadata.lineage] == ["rcil train, demo-base"]


@pytest.fixture
def small_base(tmp_path, monkeypatch):
    """A tiny network takes the place of the model that is shipped."""
    torch.manual_seed(0)
    network = build(Architecture(backbone="resnet18", width=4, blocks=(1, 1, 1, 1), head_width=8), [KNOWN])
    lineage = (LineageEntry(step=0, source="rcil train, demo-base"),)
    save(tmp_path / "base", network, Metadata(architecture=network.arch, classes=class_table([KNOWN]), lineage=lineage))
    monkeypatch.setattr(demo, "BASE", tmp_path / "base")


def test_the_chain_in_one_process(small_base, tmp_path, monkeypatch):
    """Without the programs that the demo starts, and without a browser."""

    def called(module, *words):
        done = call(module.replace("_", "-"), *words)
        assert done.code == 0, done.err

    monkeypatch.setattr(programs, "_call", called)
    monkeypatch.setattr(programs, "BROWSERS", ())
    out = tmp_path / "out"
    done = call("rcil demo", "--quick", "-o", str(out))
    assert done.code == 0, done.err
    check(done.out, out, page=False)
    assert "no browser found" in done.out

    trained = (out / "vehicle" / "model.safetensors").stat().st_mtime_ns
    again = call("rcil demo", "--quick", "-o", str(out))
    assert again.code == 0, again.err
    assert "epoch" not in again.out, "what is finished is not trained again"
    assert (out / "vehicle" / "model.safetensors").stat().st_mtime_ns == trained


@pytest.mark.slow
def test_quick_demo(tmp_path):
    command = [sys.executable, "-m", "rcil", "demo", "--quick", "-o", str(tmp_path / "out")]
    env = {**os.environ, "OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=env)
    assert done.returncode == 0, done.stderr
    check(done.stdout, tmp_path / "out", page=shutil.which("chromium"))

    again = subprocess.run(command, capture_output=True, text=True, check=False, env=env)
    assert again.returncode == 0, again.stderr
    assert "epoch" not in again.stdout, "what is finished is not trained again"
