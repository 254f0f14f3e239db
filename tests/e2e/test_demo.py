"""The whole chain in miniature, as `make demo` runs it."""

import json
import subprocess
import sys

import cv2

from rcil.checkpoint.header import read_header


def test_quick_demo(tmp_path):
    command = [sys.executable, "-m", "rcil", "demo", "--quick", "-o", str(tmp_path / "out")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "exactly those of a plain network" in done.stdout.replace("\n", " ")
    names = {path.name for path in (tmp_path / "out").iterdir()}
    assert names == {
        "step0.safetensors", "step1.safetensors", "deployed.safetensors", "deployed.fold.json", "report.json",
        "demo.jpg", "scene.png", "scene_mask.png", "scene_overlay.png",
    }  # fmt: skip
    report = json.loads((tmp_path / "out" / "report.json").read_text())
    assert report["fold"]["ok"] is True
    assert set(report["iou"]) == {"step 0", "step 1, fine-tuning", "step 1, rcil"}
    deployed = read_header(tmp_path / "out" / "deployed.safetensors").metadata
    assert [c.name for c in deployed.classes] == ["background", "ball", "crate", "cone"]
    assert [entry.source for entry in deployed.lineage] == ["rcil demo", "fold"]
    assert cv2.imread(str(tmp_path / "out" / "demo.jpg")).shape[1] > 1000
