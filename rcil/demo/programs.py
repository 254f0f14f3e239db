"""Run `rcil-export` and `rcil-serve` as separate processes, as a user would."""

from __future__ import annotations

import json
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from rcil.core.errors import RcilError
from rcil.core.images import read_rgb, write_image
from rcil.data.site import read_site
from rcil.demo.picture import pick
from rcil.inference import load


def deploy(output: Path, step1: Path, site: Path, names: tuple[str, ...], force: list[str]) -> dict[str, Any]:
    """Fold with `rcil-export` and draw an overlay with `rcil-serve`; returns the report of the fold."""
    deployed = output / "deployed.safetensors"
    _call("rcil_export", "fold", str(step1), "-o", str(deployed), *force)
    (sample,) = pick(read_site(site), "val", names, 1)
    write_image(output / "scene_mask.png", load(deployed).segment(read_rgb(sample.image)))
    files = [str(sample.image), str(output / "scene_mask.png")]
    _call("rcil_serve", "overlay", *files, "--model", str(deployed), "-o", str(output / "scene_overlay.png"))
    result: dict[str, Any] = json.loads(deployed.with_suffix(".fold.json").read_text(encoding="utf-8"))
    return result


def export(
    model: Path, parent: Path, site: Path, output: Path, size: tuple[int, int], force: list[str]
) -> dict[str, Any]:
    """Export with `rcil-export` at the size of the site's images; returns a summary of its report."""
    height, width = size
    target = "onnx,engine" if find_spec("tensorrt_rtx") or find_spec("tensorrt") else "onnx"
    options = ["--size", f"{height}x{width}", "--target", target, "--images", str(site), "--previous", str(parent)]
    _call("rcil_export", "export", str(model), "-o", str(output), *options, *force)
    report: dict[str, Any] = json.loads((output / "report.json").read_text(encoding="utf-8"))
    items = {item["key"]: item["passed"] for result in report["results"] for item in result["items"]}
    return {"ok": report["ok"], "target": target, "checks": items}


def show_clip(output: Path, site: Path, first: Path, size: tuple[int, int]) -> dict[str, Any]:
    """Segment the clip of the site and compare both models on it; returns the number of frames and the fps."""
    clip, video, before = site / "clip.mp4", output / "video.mp4", output / "first.onnx"
    model = output / "export" / "model.onnx"
    extras = ["--jsonl", str(output / "frames.jsonl"), "--timeline", str(output / "timeline.png"), "--legend"]
    _call("rcil_serve", "video", str(clip), "--model", str(model), "-o", str(video), *extras)
    _call("rcil_export", "onnx", str(first), "-o", str(before), "--size", f"{size[0]}x{size[1]}")
    _call("rcil_serve", "diff", str(before), str(model), str(clip), "-o", str(output / "diff"))
    receipt: dict[str, Any] = json.loads(video.with_suffix(".receipt.json").read_text(encoding="utf-8"))
    return {"frames": receipt["frames"]["written"], "frames_a_second": receipt["frames_a_second"]}


def _call(module: str, *arguments: str) -> None:
    done = subprocess.run([sys.executable, "-m", module, *arguments], capture_output=True, text=True, check=False)
    if done.returncode:
        raise RcilError(
            f"{module} {arguments[0]} failed: {done.stderr.strip()}", "Run the command separately with --debug."
        )
