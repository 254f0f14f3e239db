"""One cell: all steps of a run, and what is measured of it."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

from rcil.core.documents import write_json
from rcil.evaluation.evaluate import evaluate
from rcil.inference import load
from rcil.methods import make_method
from rcil.training.plan import make_plan
from rcil.training.run import run_task
from rcil.training.task import Task


def held_out_classes(task: Task, model: Path) -> dict[str, float | None]:
    """IoU of every class on all images that were held out of any step."""
    plan = make_plan(task, joint=make_method(task.method.name, **task.method.options).sees_all_data)
    samples = {sample.name: sample for step in plan.steps for sample in step.validation}
    report = evaluate(
        load(model), plan.data, tuple(samples.values()), scale=task.data.scale, test_crop=task.data.test_crop
    )
    return {c["name"]: c["iou"] for c in report.as_document()["classes"]}


def run_cell(task: Task, folder: Path, *, step0: Path | None, held_out: bool) -> None:
    """Train all steps, or what is left of them, and write `cell.json`, which says that the cell is finished.

    A finished cell is only measured further: it may belong to a table of another name.

    Args:
        task: What to do.
        folder: Of the run.
        step0: A run with the same step 0.
        held_out: Also measure the last model on the held-out images.
    """
    finished = folder / "cell.json"
    document = json.loads(finished.read_text(encoding="utf-8")) if finished.is_file() else _trained(task, folder, step0)
    if held_out:
        document["held_out"] = held_out_classes(task, folder / f"step{len(document['steps']) - 1}.safetensors")
    write_json(finished, document)
    for pattern in ("step*/state.pt", "step*/best.safetensors", "step*/last.safetensors"):
        for state in folder.glob(pattern):
            state.unlink()


def _trained(task: Task, folder: Path, step0: Path | None) -> dict[str, Any]:
    """All steps; the seconds are those of the process that finishes the cell."""
    started = time.process_time()
    results = run_task(task, folder, resume=True, step0_of=step0)
    return {"steps": results["steps"], "cpu_seconds": round(time.process_time() - started, 1)}
