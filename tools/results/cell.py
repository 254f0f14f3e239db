"""One cell of a table: all steps of a run, and its measurements."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

from rcil.core.documents import write_json
from rcil.evaluation.evaluate import evaluate
from rcil.inference import load
from rcil.methods import make_method
from rcil.tasks.plan import make_plan
from rcil.tasks.task import Task
from rcil.training.run import run_task


def held_out_classes(task: Task, model: Path) -> dict[str, float | None]:
    """IoU of every class on the held-out images of all steps."""
    plan = make_plan(task, joint=make_method(task.method.name, **task.method.options).sees_all_data)
    samples = {sample.name: sample for step in plan.steps for sample in step.validation}
    report = evaluate(
        load(model), plan.data, tuple(samples.values()), scale=task.data.scale, test_crop=task.data.test_crop
    )
    return {c["name"]: c["iou"] for c in report.as_document()["classes"]}


def run_cell(task: Task, folder: Path, *, step0: Path | None, held_out: bool) -> None:
    """Train all remaining steps, and write `cell.json`, which marks the cell as finished.

    A finished cell is only measured again, because it may also belong to another table.

    Args:
        task: The task of the run.
        folder: Folder of the run.
        step0: A run with the same step 0, whose result is reused.
        held_out: Also measure the last model on the held-out images.
    """
    finished = folder / "cell.json"
    document = json.loads(finished.read_text(encoding="utf-8")) if finished.is_file() else _trained(task, folder, step0)
    if held_out:
        document["held_out"] = held_out_classes(task, folder / f"step{len(document['steps']) - 1}.safetensors")
    write_json(finished, document)
    for state in folder.glob("step*/state.pt"):
        state.unlink()


def _trained(task: Task, folder: Path, step0: Path | None) -> dict[str, Any]:
    """Run all steps. Only the seconds of the process that finishes the cell are counted."""
    started = time.process_time()
    results = run_task(task, folder, resume=True, step0_of=step0)
    return {"steps": results["steps"], "cpu_seconds": round(time.process_time() - started, 1)}
