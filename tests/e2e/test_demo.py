"""The whole chain in miniature, as `make demo` runs it."""

import json
import os
import shutil
import subprocess
import sys

import cv2
import pytest

from rcil.model.header import read_header


def test_quick_demo(tmp_path):
    command = [sys.executable, "-m", "rcil", "demo", "--quick", "-o", str(tmp_path / "out")]
    env = {**os.environ, "OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=env)
    assert done.returncode == 0, done.stderr
    assert "it was never taught vehicle" in done.stdout.replace("\n", " ")
    out = tmp_path / "out"
    assert {path.name for path in out.iterdir()} == {
        "site", "deployed.safetensors", "deployed.onnx", "vehicle", "export", "report.json", "demo.jpg", "iou.png",
        "video.mp4", "video.receipt.json", "frames.jsonl", "timeline.png", "diff",
        *(["page.png"] if shutil.which("chromium") else []),
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
    known = ["background", "road", "building", "vegetation", "person", "crate", "barrier", "cone", "sign", "ball"]
    assert [c.name for c in taught.classes] == [*known, "vehicle"]
    assert [entry.source for entry in taught.lineage] == ["rcil train, demo-base", "rcil add-class"]
    assert set(report["iou"]["after add-class"]) == {c.name for c in taught.classes}
    assert cv2.imread(str(out / "demo.jpg")).shape[1] > 4 * 2 * 96

    again = subprocess.run(command, capture_output=True, text=True, check=False, env=env)
    assert again.returncode == 0, again.stderr
    assert "epoch" not in again.stdout, "what is finished is not trained again"
