"""The whole chain in miniature, as `make demo` runs it."""

import json
import os
import shutil
import subprocess
import sys

import cv2

from rcil.model.header import read_header


def test_quick_demo(tmp_path):
    command = [sys.executable, "-m", "rcil", "demo", "--quick", "-o", str(tmp_path / "out")]
    env = {**os.environ, "OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=env)
    assert done.returncode == 0, done.stderr
    assert "exactly those of a plain network" in done.stdout.replace("\n", " ")
    out = tmp_path / "out"
    assert {path.name for path in out.iterdir()} == {
        "site", "first", "fine-tuning", "rcil", "deployed.safetensors", "deployed.fold.json", "export",
        "report.json", "demo.jpg", "forgetting.png", "scene_mask.png", "scene_overlay.png",
        "video.mp4", "video.receipt.json", "frames.jsonl", "timeline.png", "first.onnx", "diff",
        *(["page.png"] if shutil.which("chromium") else []),
    }  # fmt: skip
    assert {path.name for path in (out / "diff").iterdir()} == {
        "diff.mp4",
        "diff.html",
        "diff.json",
        "diff.receipt.json",
    }
    report = json.loads((out / "report.json").read_text())
    assert report["fold"]["ok"] is True
    assert report["export"]["ok"] is True
    assert {"model.onnx", "report.html", "report.json"} <= {path.name for path in (out / "export").iterdir()}
    assert list(report["iou"]) == ["step 0", "step 1, fine-tuning", "step 1, rcil"]
    deployed = read_header(out / "deployed.safetensors").metadata
    assert [c.name for c in deployed.classes] == ["background", "building", "vegetation", "road"]
    assert [entry.source for entry in deployed.lineage] == ["rcil train, demo", "rcil add-class", "fold"]
    assert cv2.imread(str(out / "demo.jpg")).shape[1] > 5 * 96

    again = subprocess.run(command, capture_output=True, text=True, check=False, env=env)
    assert again.returncode == 0, again.stderr
    assert "epoch" not in again.stdout, "what is finished is not trained again"
