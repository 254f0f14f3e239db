"""Run a classification task: train every step, keep finished steps, and measure the accuracy after each."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from rcil.classify.checkpoint import load_classifier, save_classifier
from rcil.classify.data import ClassificationData, LabelledImages, class_steps, load_data
from rcil.classify.loop import StepJob, embed, predict, recalibrate, train_step, tune
from rcil.classify.memory import Memory, herd, read_memory
from rcil.classify.methods import ClassifyMethod, HeadSizes, make_classify_method
from rcil.classify.network import ImageClassifier, build_classifier, next_step
from rcil.classify.state import interrupted_phase
from rcil.classify.task import ClassifyTask
from rcil.core.documents import write_json
from rcil.core.errors import TrainingError
from rcil.core.files import check_writable, sha256_of, working_in
from rcil.core.log import DryRun, Notify
from rcil.hardware.devices import choose_device
from rcil.model.architecture import Architecture
from rcil.model.header import read_header
from rcil.model.metadata import ClassifierMetadata, LineageEntry, class_table, recorded
from rcil.training.loop import Listener
from rcil.training.run_record import record_task


@dataclass(frozen=True)
class Setting:
    """What all steps of a run share."""

    task: ClassifyTask
    method: ClassifyMethod
    steps: tuple[tuple[str, ...], ...]
    data: ClassificationData
    """The data; labels are indices into `order`."""
    digest: str
    output: Path
    listen: Listener
    device: torch.device
    """The device of training and evaluation."""

    @property
    def order(self) -> tuple[str, ...]:
        """All classes in row order."""
        return tuple(name for names in self.steps for name in names)

    def checkpoint(self, index: int) -> Path:
        """The checkpoint of a step; if it exists, the step is finished."""
        return self.output / f"step{index}.safetensors"

    def state(self, index: int) -> Path:
        """The state of an interrupted step."""
        return self.output / f"step{index}.state.pt"

    def memory(self, index: int) -> Path:
        """The file that lists the images kept after a step."""
        return self.output / f"step{index}.memory.json"


def run_classify(
    task: ClassifyTask, output: Path, *, listen: Listener = lambda event: None, say: Notify = lambda text: None
) -> dict[str, Any]:
    """Train all steps; returns the content of `results.json`.

    A repeated call with the same folder keeps finished steps. It continues a step that was interrupted by a signal, and
    restarts one that ended in another way.

    Args:
        task: The task.
        output: Folder of the run: `task.yaml`, `stepN.safetensors`, `stepN.memory.json`, `results.json`.
        listen: Called after every iteration.
        say: Receives the accuracy after every step.
    """
    setting = prepare(task, output, listen)
    with working_in(output):
        record_task(output, task, resume=True)
        return _run_steps(setting, say)


def _run_steps(setting: Setting, say: Notify) -> dict[str, Any]:
    task, output = setting.task, setting.output
    results: list[dict[str, Any]] = []
    document: dict[str, Any] = {}
    model: ImageClassifier | None = None
    for index, names in enumerate(setting.steps):
        path = setting.checkpoint(index)
        if not path.exists():
            _train(setting, index, model)
        model, metadata = load_classifier(path)
        model = model.to(setting.device)
        if metadata.lineage[-1].data_sha256 != setting.digest:
            raise TrainingError(f"{path} was trained on different images", "Restore them, or choose another folder.")
        accuracy = measure(model, setting, index)
        results.append({"step": index, "teaches": list(names), **accuracy})
        say(f"step {index}: {_in_words(accuracy['accuracy'])} after {', '.join(names)}")
        document = {
            "task": task.name,
            "method": task.method.name,
            "rc": task.method.rc,
            "seed": task.seed,
            "evaluated_on": task.data.evaluate,
            "steps": results,
            "average_incremental_accuracy": fmean(step["accuracy"]["all"] for step in results),
        }
        write_json(output / "results.json", document)
    return document


def measure(model: ImageClassifier, setting: Setting, index: int) -> dict[str, Any]:
    """Accuracy after a step on the test images of all, old and new classes, and of each class."""
    seen = sum(map(len, setting.steps[: index + 1]))
    test = setting.data.test[np.flatnonzero(setting.data.test.labels < seen)]
    right = predict(model, test.images, setting.task.training.workers).numpy() == test.labels
    new = test.labels >= seen - len(setting.steps[index])
    return {
        "images": len(test.labels),
        "accuracy": {"all": _share(right), "old": _share(right[~new]), "new": _share(right[new])},
        "classes": {name: _share(right[test.of_class(row)]) for row, name in enumerate(setting.order[:seen])},
    }


def _share(right: NDArray[np.bool_]) -> float | None:
    return float(right.mean()) if len(right) else None


def _in_words(accuracy: dict[str, float | None]) -> str:
    return ", ".join(f"{name} {100 * value:.1f} %" for name, value in accuracy.items() if value is not None)


def prepare(task: ClassifyTask, output: Path, listen: Listener = lambda event: None) -> Setting:
    """Prepare a run without writing anything."""
    device = choose_device(task.training.device)
    data = load_data(task.data)
    steps = class_steps(data.names, task.protocol, task.seed)
    order = [name for names in steps for name in names]
    rows = np.array([order.index(name) for name in data.names], np.int64)
    ordered = ClassificationData(tuple(order), *(_relabelled(part, rows) for part in (data.train, data.test)))
    method = make_classify_method(task.method.name, task.method.options)
    return Setting(task, method, steps, ordered, data.digest(), output, listen, device)


def _relabelled(images: LabelledImages, rows: NDArray[np.int64]) -> LabelledImages:
    return LabelledImages(images.images, rows[images.labels])


def _train(setting: Setting, index: int, previous: ImageClassifier | None) -> None:
    """Train one step; its checkpoint is written last."""
    task, train = setting.task, setting.data.train
    seed = task.seed * 1000 + index
    torch.manual_seed(seed)
    generator = torch.Generator().manual_seed(seed)
    memory: Memory = {} if previous is None else read_memory(setting.memory(index - 1), len(train.labels))
    new = {name: train.of_class(setting.order.index(name)) for name in setting.steps[index]}
    student = _student(setting, previous, new, generator)
    heads = HeadSizes(tuple(map(len, setting.steps[: index + 1])))
    saved = setting.state(index)
    job = StepJob(index, heads, setting.method, task.training, generator, setting.listen, setting.device, saved)
    images = train[_indices(new, memory)]
    if interrupted_phase(saved) == "tune":
        memory = read_memory(setting.memory(index), len(train.labels))
    else:
        train_step(job, student, previous, images)
        recalibrate(job, student, images)
        for name, indices in new.items():
            embeddings = embed(student, train.images[indices], task.training.workers)
            memory[name] = [int(indices[at]) for at in herd(embeddings, task.memory.per_class)]
        write_json(setting.memory(index), memory)
    if previous is not None:
        tune(job, student, previous, train[_indices(memory)])
        recalibrate(job, student, images)
    save_classifier(setting.checkpoint(index), student, _metadata(setting, index, student.arch))
    saved.unlink(missing_ok=True)


def _student(
    setting: Setting, previous: ImageClassifier | None, new: dict[str, NDArray[np.int64]], generator: torch.Generator
) -> ImageClassifier:
    """The network at the start of a step."""
    method, section = setting.method, setting.task.method
    if previous is None:
        arch = Architecture(**setting.task.network.model_dump(), rc=method.branches if section.rc else None)
        return build_classifier(arch, method.head, setting.steps[:1]).to(setting.device)
    student = next_step(previous, preserve=method.preserve)
    images, workers = setting.data.train.images, setting.task.training.workers

    def embeddings() -> list[Tensor]:
        return [embed(student, images[indices], workers) for indices in new.values()]

    method.grow(student, list(new), embeddings, generator)
    return student


def _indices(*groups: dict[str, Any]) -> NDArray[np.int64]:
    """All image indices of several groups of classes."""
    return np.concatenate([np.asarray(indices, np.int64) for group in groups for indices in group.values()])


def _metadata(setting: Setting, index: int, arch: Architecture) -> ClassifierMetadata:
    task, parent = setting.task, setting.checkpoint(index - 1)
    entry = LineageEntry(
        step=index,
        source=f"rcil classify, {task.name}",
        parent_sha256=sha256_of(parent) if index else None,
        data_sha256=setting.digest,
        config=recorded(task),
        seed=task.seed,
        versions={"torch": torch.__version__},
    )
    head = setting.method.head
    return ClassifierMetadata(
        architecture=arch,
        classes=class_table([list(names) for names in setting.steps[: index + 1]]),
        method=f"{task.method.name}{' + RC' if task.method.rc else ''}",
        step=index,
        lineage=(*(read_header(parent).metadata.lineage if index else ()), entry),
        head=head.kind,
        proxies=head.proxies,
        size=task.data.size,
    )


CELLS = 4
"""Runs of a comparison per seed: two methods, without and with RC."""


def dry_run(task: ClassifyTask, output: Path, seeds: int, *, compare: bool) -> DryRun:
    """Read the images and report what a run or a comparison would do."""
    check_writable(output)
    setting = prepare(task, output)
    later = len(setting.steps) - 1
    training = task.training
    iterations = training.iterations[0] + later * (training.iterations[1] + training.tune_iterations)
    runs = CELLS * seeds if compare else 1
    source = "handwritten digits of scikit-learn" if task.data.root is None else str(task.data.root)
    images = f"{len(setting.data.train.labels)} images to train with, {len(setting.data.test.labels)} to test with"
    files = ("compare.json", "compare.md", "curves.png") if compare else ("task.yaml", "results.json")
    steps = {f"step {index}": ", ".join(names) for index, names in enumerate(setting.steps)}
    return DryRun(
        {source: images},
        {str(output): f"{runs} runs of {later + 1} checkpoints" if compare else f"{later + 1} checkpoints"}
        | {str(output / name): "" for name in files},
        {**steps, "iterations": f"{runs * iterations} of {training.batch} images"},
    )
