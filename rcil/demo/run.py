"""Runs the demo: two steps, a comparison with fine-tuning, folding, a picture and a report."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from rcil.architecture import Architecture
from rcil.checkpoint.file import save
from rcil.checkpoint.metadata import LineageEntry, Metadata, class_table
from rcil.console import write_json
from rcil.demo import picture
from rcil.demo.scenes import CLASSES, make_scene
from rcil.demo.training import Method, Progress, Step, evaluate, predict, train
from rcil.drawing import Image
from rcil.errors import RcilError
from rcil.files import sha256_of
from rcil.images import write_image
from rcil.nn import Segmenter, begin_step, build

OLD, NEW = CLASSES[:3], CLASSES[3:]
SHOWN = [900_001, 900_004, 900_007]
SEED = 0


def run(
    output: Path,
    *,
    iterations: tuple[int, int],
    report: Callable[[str], None],
    progress: Callable[[str, int], Progress],
) -> dict[str, Any]:
    """Everything; returns what was also written to `report.json`.

    Args:
        output: Folder for checkpoints, picture and report.
        iterations: Of step 0 and of step 1.
        report: Told what happens, a line at a time.
        progress: Given a title and a number of iterations, returns what to call after each.
    """
    started = time.perf_counter()
    torch.manual_seed(SEED)
    first = Step((1, 2), iterations[0], 0.2, first_seed=0)
    second = Step((3,), iterations[1], 0.15, first_seed=500_000)
    base = build(Architecture(backbone="resnet18", width=16, head_width=64, output_stride=8), [OLD])
    report(f"step 0 teaches {', '.join(OLD[1:])}; cones are in the scenes, but nobody labels them")
    base = train(base, first, teacher=None, method="fine-tuning", progress=progress("step 0", first.iterations))
    results: dict[str, dict[str, float]] = {"step 0": evaluate(base)}
    _save(output / "step0.safetensors", base, "rcil", results["step 0"], parent=None)

    report(f"step 1 teaches {NEW[0]}; nobody labels the rest any more")
    models: dict[str, Segmenter] = {}
    for method in ("fine-tuning", "rcil"):
        student = _start(base, method)
        title = f"step 1, {method}"
        models[method] = train(
            student, second, teacher=base, method=method, progress=progress(title, second.iterations)
        )
        results[title] = evaluate(models[method])
    step1 = output / "step1.safetensors"
    _save(step1, models["rcil"], "rcil", results["step 1, rcil"], parent=output / "step0.safetensors")

    masks = {title: _predictor(model) for title, model in (("step 0", base), *models.items())}
    write_image(output / "demo.jpg", picture.draw(masks, SHOWN))
    fold = _deploy(output, step1, masks["rcil"])
    document = {"iou": results, "fold": fold, "seconds": round(time.perf_counter() - started, 1), "seed": SEED}
    write_json(output / "report.json", document)
    return document


def _start(base: Segmenter, method: Method) -> Segmenter:
    """Both start from the same network; plain fine-tuning neither merges nor freezes."""
    torch.manual_seed(SEED + 1)
    if method == "rcil":
        return begin_step(base, NEW, rows="balanced")
    return begin_step(base, NEW, rows="random", merge=False, freeze=False)


def _predictor(model: Segmenter) -> Callable[[Image], Image]:
    return lambda image: predict(model, image)


def _save(path: Path, model: Segmenter, method: str, metrics: dict[str, float], parent: Path | None) -> None:
    steps = [list(names) for names in model.classifier.steps]
    entry = LineageEntry(
        step=len(steps) - 1,
        source="rcil demo",
        parent_sha256=sha256_of(parent) if parent else None,
        seed=SEED,
        versions={"torch": torch.__version__},
        metrics=metrics,
    )
    metadata = Metadata(
        architecture=model.arch,
        classes=class_table(steps),
        method=method,
        step=len(steps) - 1,
        lineage=(entry,),
    )
    save(path, model, metadata)


def _deploy(output: Path, step1: Path, see: Callable[[Image], Image]) -> dict[str, Any]:
    """Fold with `rcil-export` and draw with `rcil-serve`: the other two programs, as a user calls them."""
    deployed = output / "deployed.safetensors"
    _call("rcil_export", "fold", str(step1), "-o", str(deployed))
    image, _ = make_scene(SHOWN[0], 256)
    write_image(output / "scene.png", image)
    write_image(output / "scene_mask.png", see(image))
    files = [str(output / name) for name in ("scene.png", "scene_mask.png")]
    _call("rcil_serve", "overlay", *files, "--model", str(deployed), "-o", str(output / "scene_overlay.png"))
    result: dict[str, Any] = json.loads(deployed.with_suffix(".fold.json").read_text(encoding="utf-8"))
    return result


def _call(module: str, *arguments: str) -> None:
    done = subprocess.run([sys.executable, "-m", module, *arguments], capture_output=True, text=True, check=False)
    if done.returncode:
        raise RcilError(f"{module} {arguments[0]} failed: {done.stderr.strip()}", "Run it by itself with --debug.")
