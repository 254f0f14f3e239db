"""Run a task: train every step, keep finished steps, and evaluate on the test split."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import Any, TypeVar

import torch
from pydantic import ValidationError

from rcil.attaching.model import load_weights
from rcil.checkpoint.file import load, load_backbone, save
from rcil.checkpoint.importers import installed_weights
from rcil.core.documents import parse_json, write_json
from rcil.core.errors import CheckpointError, ConfigError, TrainingError
from rcil.core.files import copy_file, sha256_of, working_in
from rcil.core.log import log, stage
from rcil.data.protocol import memory_table, training_table
from rcil.data.scan import data_digest, id_table
from rcil.hardware.processes import Processes, deterministic, join
from rcil.inference import Model
from rcil.methods import Method, StepInfo, check_names, make_method
from rcil.methods.base import with_branches
from rcil.model.architecture import BOTTLENECK, Architecture
from rcil.model.header import read_header
from rcil.model.metadata import (
    IMAGENET_MEAN,
    IMAGENET_STD,
    LITE_MEAN,
    LITE_STD,
    AnyArchitecture,
    ClassInfo,
    LineageEntry,
    Metadata,
    recorded,
)
from rcil.nn import Network, Segmenter, build
from rcil.nn.attached.attach import attach_network
from rcil.nn.attached.builders import build_module
from rcil.tasks.compatibility import check_compatible
from rcil.tasks.plan import Plan, StepPlan, make_plan
from rcil.tasks.published import published_miou
from rcil.tasks.task import NetworkSection, Task
from rcil.training.loader import Crops, CropSettings
from rcil.training.loop import Listener, StepJob, evaluate_together, finish_first_step, train_step
from rcil.training.run_record import record_task
from rcil.training.state import read_state, write_state
from rcil.training.tensorboard import both, tensorboard

T = TypeVar("T")
FOREIGN = ("factory", "args", "weights", "mean", "std")
"""Keys of the network section that are about networks of other libraries."""


def run_task(
    task: Task,
    output: Path,
    *,
    resume: bool = False,
    step0_of: Path | None = None,
    only_first: bool = False,
    listen: Listener = lambda event: None,
) -> dict[str, Any]:
    """Train all steps; returns the content of `results.json`.

    Args:
        task: The task.
        output: Folder of the run: `stepN.safetensors`, `stepN/` with log and state, `results.json`, `task.yaml`.
        resume: Continue a run in this folder; otherwise a folder that holds a run is an error.
        step0_of: Folder of a run whose step 0 is trained alike; its network is finished by this method.
        only_first: Stop after step 0; the same call without it continues.
        listen: Called after every iteration and epoch, in the first process.
    """
    with join(task.training.device) as processes:
        check_pieces(task.training.batch, task.training.accumulate, processes.count)
        check_compatible(task.network.norm, task.training.precision, processes.device)
        check_start(task, output, step0_of)
        with deterministic(task.training.deterministic):
            if not processes.leads:
                return _run_steps(task, output, resume, step0_of, only_first, lambda event: None, processes)
            with working_in(output), tensorboard(output) as board:
                return _run_steps(task, output, resume, step0_of, only_first, both(board, listen), processes)


def check_pieces(batch: int, accumulate: int, processes: int) -> None:
    """Raise if a batch cannot be divided evenly, or if its pieces have a single image."""
    pieces = accumulate * processes
    if batch % pieces:
        raise ConfigError(
            f"a batch of {batch} cannot be divided into {pieces} equal pieces (processes: {processes}, "
            f"training.accumulate: {accumulate})",
            f"Set training.batch to a multiple of {pieces}.",
        )
    if batch == accumulate:
        raise ConfigError(
            "a piece of one image has no batch statistics",
            "Raise training.batch or lower training.accumulate, so that at least two images are normalised together.",
        )


def _run_steps(
    task: Task,
    output: Path,
    resume: bool,
    step0_of: Path | None,
    only_first: bool,
    listen: Listener,
    processes: Processes,
) -> dict[str, Any]:
    """The first process reads the data and records the task before the others look at either."""
    method = make_method(task.method.name, **task.method.options)
    check_names(task.method.lr)
    if not processes.leads:
        processes.wait()
    plan = make_plan(task, joint=method.sees_all_data)
    if processes.leads:
        record_task(output, task, resume=resume)
        for warning in plan.warnings:
            log.warning(warning)
        processes.wait()
    results: list[dict[str, Any]] = []
    earlier = _earlier_results(output) if processes.count == 1 else {}
    model: Model | None = None
    for step_plan in plan.steps[:1] if only_first else plan.steps:
        index = step_plan.step.index
        final = output / f"step{index}.safetensors"
        finished = final.exists()
        processes.wait()
        if not finished:
            with stage(f"training of step {index}"):
                shared = step0_of if index == 0 else None
                _train(task, plan, step_plan, model, method, output, listen, processes, shared)
        processes.wait()
        model = Model(*load(final), final).to(processes.device)
        _remember(method, output, index)
        if finished and index in earlier:
            results.append(earlier[index])
        else:
            report = evaluate_together(
                model, plan.data, plan.test, task.data.scale, processes, test_crop=task.data.test_crop
            )
            results.append({"step": index, "teaches": list(step_plan.teaches), **report.as_document()})
        document: dict[str, Any] = {"task": task.name, "method": task.method.name, "steps": results}
        if (paper := published_miou(task, task.method.name)) is not None:
            document["paper"] = paper
        if processes.leads:
            write_json(output / "results.json", document)
    return document


def _earlier_results(output: Path) -> dict[int, dict[str, Any]]:
    """What an interrupted run has measured, by step; nothing if there is no such file or it cannot be read."""
    try:
        return {step["step"]: step for step in parse_json((output / "results.json").read_text("utf-8"))["steps"]}
    except (OSError, ValueError, KeyError, TypeError):
        return {}


def _train(
    task: Task,
    plan: Plan,
    step: StepPlan,
    previous: Model | None,
    method: Method,
    output: Path,
    listen: Listener,
    processes: Processes,
    step0_of: Path | None,
) -> None:
    """Train one step, or continue it, and write its checkpoint. Step 0 of another run is only finished."""
    index = step.step.index
    torch.manual_seed(task.seed * 1000 + index)
    settings = task.own_training
    if step0_of is not None:
        student, _ = load(step0_of / "step0" / f"{settings.keep}.safetensors")
    elif previous is None:
        student = first_network(task, method, step)
    else:
        student = method.begin(previous.network, step.names)
    metadata = _metadata(task, plan, step, student.arch, parent=output / f"step{index - 1}.safetensors")
    table = training_table(step.step)[id_table(plan.data)]
    memory = [(kept.sample, memory_table(kept.step)[id_table(plan.data)]) for kept in step.memory]
    crops = CropSettings.of(settings, task.data.scale)
    job = StepJob(
        index=index,
        info=StepInfo(len(step.step.seen) - len(step.step.classes), len(step.step.classes), memory=bool(memory)),
        metadata=metadata,
        crops=Crops(step.train, table, metadata, crops, (task.seed, index), memory),
        data=plan.data,
        validation=spread(step.validation, settings.validate_images),
        settings=settings,
        scale=task.data.scale,
        folder=output / f"step{index}",
        processes=processes,
        test_crop=task.data.test_crop,
    )
    job.folder.mkdir(parents=True, exist_ok=True)
    if step0_of is None:
        final = train_step(job, student, previous, method, listen)
    else:
        final = finish_first_step(job, student, method, listen)
    if not processes.leads:
        return
    if step0_of is None:
        metrics = _kept_metrics(job.folder)
    else:
        metrics = read_header(step0_of / "step0.safetensors").metadata.lineage[-1].metrics
        copy_file(step0_of / "step0" / "log.csv", job.folder / "log.csv")
    write_state(job.folder / "method.pt", method.state_dict())
    measured = _measured(metadata, final.arch, metrics).model_copy(update={"features": method.measured})
    save(output / f"step{index}.safetensors", final, measured)


def spread(items: Sequence[T], count: int | None) -> tuple[T, ...]:
    """At most `count` evenly spread items; None returns all."""
    if count is None or count >= len(items):
        return tuple(items)
    return tuple(items[index * len(items) // count] for index in range(count))


def _kept_metrics(folder: Path) -> dict[str, float]:
    """The kept epoch and, if it was validated, its results on the held-out images."""
    position = read_state(folder / "state.pt")["position"]
    metrics = {"best_epoch": float(position["best_epoch"])}
    if position["best_miou"] >= 0:
        metrics["held_out_miou"] = position["best_miou"]
    return metrics | {f"iou {name}": value for name, value in position.get("best_classes", {}).items()}


def _measured(metadata: Metadata, arch: AnyArchitecture, metrics: Mapping[str, float]) -> Metadata:
    """The metadata of the final network, with the metrics of the kept epoch."""
    *earlier, last = metadata.lineage
    lineage = (*earlier, last.model_copy(update={"metrics": {**last.metrics, **metrics}}))
    return metadata.model_copy(update={"architecture": arch, "lineage": lineage})


def _remember(method: Method, output: Path, index: int) -> None:
    """Restore the state of the method after a finished step; the file may be missing if no later step needs it."""
    path = output / f"step{index}" / "method.pt"
    if not path.exists() and not method.carries_over:
        return
    try:
        method.load_state_dict(read_state(path))
    except TrainingError as error:
        first = output / f"step{index}.safetensors"
        hint = f"Delete {first} and the files of later steps to train again from step {index}."
        raise TrainingError(error.message, hint) from error


def first_network(task: Task, method: Method, step: StepPlan) -> Network:
    """The network of step 0. Its activations are those that its pretrained weights were trained with."""
    network: NetworkSection = task.network
    if network.factory is not None:
        return _attached_network(network, method, step, network.weights)
    if network.pretrained is None:
        return random_network(task, method, step)
    installed = network.pretrained == "imagenet"
    with installed_weights(network.backbone) if installed else nullcontext(Path(network.pretrained)) as path:
        stored = read_header(path).metadata.architecture
        if not isinstance(stored, Architecture):
            raise CheckpointError(f"{path} holds an attached network, not a backbone", "Name it in network.weights.")
        model = random_network(task, method, step, slope=stored.slope, stem_activation=stored.stem_activation)
        assert isinstance(model, Segmenter)
        load_backbone(model, path)
    return model


def random_network(task: Task, method: Method, step: StepPlan, **defaults: object) -> Network:
    """The network of step 0 with random weights; `defaults` are for what the task leaves out of its architecture."""
    if task.network.factory is not None:
        return _attached_network(task.network, method, step, None)
    fields = task.network.model_dump(exclude={"pretrained", *FOREIGN}, exclude_none=True)
    try:
        arch = Architecture.model_validate({**defaults, **fields, "rc": method.rc})
    except ValidationError as error:
        raise ConfigError(f"this network cannot be built: {error.errors()[0]['msg']}", "Change network.") from error
    return build(arch, [step.names])


def _attached_network(network: NetworkSection, method: Method, step: StepPlan, weights: Path | None) -> Network:
    """The network of another library at the start of step 0, with the branches of the method."""
    assert network.factory is not None
    module = build_module(network.factory, network.args)
    if weights is not None:
        load_weights(module, weights)
    return with_branches(attach_network(module, network.factory, network.args, step.names), method.rc)


def missing_weights(network: NetworkSection) -> CheckpointError | None:
    """The error to raise if the file that the backbone starts from does not exist."""
    if network.factory is not None:
        missing = network.weights is not None and not network.weights.exists()
        hint = "Correct network.weights, or leave it out to start from the weights that the factory gives."
        return CheckpointError(f"{network.weights} does not exist", hint) if missing else None
    path = network.pretrained
    if not isinstance(path, Path) or path.exists():
        return None
    source = f"{network.backbone}_iabn_sync.pth.tar" if network.backbone in BOTTLENECK else "WEIGHTS"
    return CheckpointError(
        f"{path}, the pretrained weights that {network.backbone} starts from (network.pretrained), does not exist",
        f"Make it with `rcil import {source} -o {path}`, from the ImageNet weights of the research code or of "
        "torchvision; to start from random weights on purpose, set network.pretrained=null.",
    )


def check_start(task: Task, output: Path, step0_of: Path | None = None) -> None:
    """Raise before any data is read if step 0 is still to be trained and its pretrained weights are missing."""
    if step0_of is None and not (output / "step0.safetensors").exists() and (error := missing_weights(task.network)):
        raise error


def _metadata(task: Task, plan: Plan, step: StepPlan, arch: AnyArchitecture, parent: Path) -> Metadata:
    known = parent.exists()
    lite = arch.lite
    entry = LineageEntry(
        step=step.step.index,
        source=f"rcil train, {task.name}",
        parent_sha256=sha256_of(parent) if known else None,
        data_sha256=data_digest((*step.train, *step.validation, *(kept.sample for kept in step.memory))),
        config=recorded(task),
        seed=task.seed,
        versions={"torch": torch.__version__},
        metrics={
            "training_images": float(len(step.train) + len(step.memory)),
            "held_out_images": float(len(step.validation)),
        },
    )
    return Metadata(
        architecture=arch,
        classes=_class_table(plan, step),
        mean=task.network.mean or (LITE_MEAN if lite else IMAGENET_MEAN),
        std=task.network.std or (LITE_STD if lite else IMAGENET_STD),
        method=task.method.name,
        step=step.step.index,
        lineage=(*(read_header(parent).metadata.lineage if known else ()), entry),
    )


def _class_table(plan: Plan, step: StepPlan) -> tuple[ClassInfo, ...]:
    """All classes so far in row order, with the colours of the dataset."""
    came = {c: p.step.index for p in plan.steps for c in p.step.classes}
    specs = plan.data.classes
    return tuple(
        ClassInfo(name=specs[c].name, id=row, colour=specs[c].colour, step=came[c])
        for row, c in enumerate(step.step.seen)
    )
