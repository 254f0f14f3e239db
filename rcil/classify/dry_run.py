"""What a classification task would take."""

from __future__ import annotations

from pathlib import Path

from rcil.classify.run import prepare
from rcil.classify.task import ClassifyTask
from rcil.core.dry_run import DryRun
from rcil.core.files import check_writable

CELLS = 4
"""Of a comparison with one seed: two methods, without and with RC."""


def dry_run(task: ClassifyTask, output: Path, seeds: int, *, compare: bool) -> DryRun:
    """Read the images and say what a run, or a comparison, would do with them."""
    check_writable(output)
    setting = prepare(task, output)
    later = len(setting.steps) - 1
    training = task.training
    iterations = training.iterations[0] + later * (training.iterations[1] + training.tune_iterations)
    runs = CELLS * seeds if compare else 1
    source = "handwritten digits of scikit-learn" if task.data.root is None else str(task.data.root)
    images = f"{len(setting.data.train.labels)} images to train with, {len(setting.data.test.labels)} to test with"
    files = ("compare.json", "compare.md", "curves.png") if compare else ("task.yaml", "results.json")
    steps = {f"step {place}": ", ".join(names) for place, names in enumerate(setting.steps)}
    return DryRun(
        {source: images},
        {str(output): f"{runs} runs of {later + 1} checkpoints" if compare else f"{later + 1} checkpoints"}
        | {str(output / name): "" for name in files},
        {**steps, "iterations": f"{runs * iterations} of {training.batch} images"},
    )
