"""A whole task: every step in turn, each finished step kept, results on the test split."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import torch
import yaml

from rcil.architecture import RC, Architecture
from rcil.checkpoint.file import load, load_backbone, save
from rcil.checkpoint.header import read_header
from rcil.checkpoint.metadata import (
    IMAGENET_MEAN,
    IMAGENET_STD,
    LITE_MEAN,
    LITE_STD,
    ClassInfo,
    LineageEntry,
    Metadata,
)
from rcil.console import write_json
from rcil.data.protocol import training_table
from rcil.data.scan import id_table
from rcil.errors import ConfigError, TrainingError
from rcil.evaluate import evaluate
from rcil.files import replacing, sha256_of
from rcil.methods import Method, StepInfo, make_method
from rcil.nn import Segmenter, build
from rcil.train.loader import Crops, CropSettings
from rcil.train.loop import Listener, StepJob, train_step
from rcil.train.plan import Plan, StepPlan, make_plan
from rcil.train.state import read_state
from rcil.train.task import NetworkSection, Task


def run_task(
    task: Task,
    output: Path,
    *,
    resume: bool = False,
    step0_of: Path | None = None,
    listen: Listener = lambda event: None,
) -> dict[str, Any]:
    """Train all steps; returns what is also written to `results.json`.

    Args:
        task: What to do.
        output: Folder of the run: `stepN.safetensors`, `stepN/` with log and state, `results.json`, `task.yaml`.
        resume: Continue a run in this folder; without it a folder that is in use is refused.
        step0_of: Folder of a run whose step 0 this one would only repeat; it is copied.
        listen: Told about every iteration and epoch.
    """
    method = make_method(task.method.name, **task.method.options)
    plan = make_plan(task, joint=method.sees_all_data)
    _claim(output, task, resume=resume)
    results: list[dict[str, Any]] = []
    model: Segmenter | None = None
    for step_plan in plan.steps:
        index = step_plan.step.index
        final = output / f"step{index}.safetensors"
        if not final.exists() and index == 0 and step0_of is not None:
            _adopt(step0_of, output, method)
        elif not final.exists():
            _train(task, plan, step_plan, model, method, output, listen)
        model, metadata = load(final)
        method.load_state_dict(read_state(output / f"step{index}" / "method.pt"))
        report = evaluate(model, metadata, plan.data, plan.test, scale=task.data.scale)
        results.append({"step": index, "teaches": list(step_plan.names), **report.as_document()})
        write_json(output / "results.json", {"task": task.name, "method": task.method.name, "steps": results})
    document: dict[str, Any] = json.loads((output / "results.json").read_text(encoding="utf-8"))
    return document


def _train(
    task: Task, plan: Plan, step: StepPlan, previous: Segmenter | None, method: Method, output: Path, listen: Listener
) -> None:
    """One step from its start, or from where it was interrupted, to its checkpoint."""
    index = step.step.index
    torch.manual_seed(task.seed * 1000 + index)
    student = _first(task, method, step) if previous is None else method.begin(previous, step.names)
    settings = task.training
    metadata = _metadata(task, plan, step, student.arch, parent=output / f"step{index - 1}.safetensors")
    table = training_table(step.step)[id_table(plan.data)]
    low, high = settings.scale
    scale = (low * task.data.scale, high * task.data.scale)
    crops = CropSettings(settings.batch, settings.crop, scale, settings.workers)
    job = StepJob(
        index=index,
        info=StepInfo(old=len(step.step.seen) - len(step.step.classes), new=len(step.step.classes)),
        metadata=metadata,
        crops=Crops(step.train, table, metadata, crops, (task.seed, index)),
        data=plan.data,
        validation=step.validation,
        settings=settings,
        scale=task.data.scale,
        folder=output / f"step{index}",
    )
    job.folder.mkdir(parents=True, exist_ok=True)
    best = train_step(job, student, previous, method, listen)
    _save_method(method, job.folder)
    save(output / f"step{index}.safetensors", best, metadata)


def _adopt(other: Path, output: Path, method: Method) -> None:
    """Take over step 0 of another run; its checkpoint comes last, because it says that the step is finished."""
    _save_method(method, output / "step0")
    for name in ("step0/log.csv", "step0.safetensors"):
        with replacing(output / name) as part:
            shutil.copyfile(other / name, part)


def _save_method(method: Method, folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    with replacing(folder / "method.pt") as part:
        torch.save(method.state_dict(), part)


def _first(task: Task, method: Method, step: StepPlan) -> Segmenter:
    """The network of step 0."""
    network: NetworkSection = task.network
    fields = network.model_dump(exclude={"pretrained"})
    model = build(Architecture(**fields, rc=RC() if method.uses_rc else None), [step.names])
    if network.pretrained is not None:
        load_backbone(model, network.pretrained)
    return model


def _metadata(task: Task, plan: Plan, step: StepPlan, arch: Architecture, parent: Path) -> Metadata:
    known = parent.exists()
    lite = arch.backbone == "efficientnet_lite0"
    entry = LineageEntry(
        step=step.step.index,
        source=f"rcil train, {task.name}",
        parent_sha256=sha256_of(parent) if known else None,
        config=task.model_dump(mode="json"),
        seed=task.seed,
        versions={"torch": torch.__version__},
    )
    return Metadata(
        architecture=arch,
        classes=_class_table(plan, step),
        mean=LITE_MEAN if lite else IMAGENET_MEAN,
        std=LITE_STD if lite else IMAGENET_STD,
        method=task.method.name,
        step=step.step.index,
        lineage=(*(read_header(parent).metadata.lineage if known else ()), entry),
    )


def _class_table(plan: Plan, step: StepPlan) -> tuple[ClassInfo, ...]:
    """All classes seen so far in row order, with the colours of the data."""
    came = {c: p.step.index for p in plan.steps for c in p.step.classes}
    specs = plan.data.classes
    return tuple(
        ClassInfo(name=specs[c].name, id=row, colour=specs[c].colour, step=came[c])
        for row, c in enumerate(step.step.seen)
    )


def _claim(output: Path, task: Task, *, resume: bool) -> None:
    """Take the folder, or make sure that it holds this very task."""
    record = output / "task.yaml"
    document = task.model_dump(mode="json")
    if record.exists():
        if not resume:
            raise ConfigError(f"{output} holds a run already", "Continue it with --resume, or choose another folder.")
        stored = yaml.safe_load(record.read_text(encoding="utf-8"))
        if stored != json.loads(json.dumps(document)):
            raise TrainingError(f"{output} was started with another task", "Resume with the same file and overrides.")
        return
    with replacing(record) as part:
        part.write_text(yaml.safe_dump(document, sort_keys=False), encoding="utf-8")
