"""Add classes to a model: check, train, compare with the old model and write the report."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterable
from contextlib import AbstractContextManager, ExitStack, nullcontext
from dataclasses import asdict, astuple, dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from rcil import __version__
from rcil.checkpoint.file import save
from rcil.core.documents import parse_json, write_json
from rcil.core.errors import TrainingError
from rcil.core.files import sha256_of, working_in, write_file
from rcil.core.images import read_rgb, write_image
from rcil.core.log import Progress
from rcil.data.protocol import BACKGROUND
from rcil.data.scan import data_digest
from rcil.data.site import read_site
from rcil.data.types import IGNORE, Sample, SegmentationData
from rcil.hardware.processes import ALONE, Processes, deterministic, join, report_once
from rcil.inference import Model
from rcil.methods import METHODS, Method, StepInfo, make_method
from rcil.model.header import read_header
from rcil.model.metadata import LineageEntry, Metadata, recorded
from rcil.nn import Network, unfold
from rcil.site.advice import Run, next_steps
from rcil.site.background import complete_masks, completed
from rcil.site.forgetting import Forgetting, Pair, Shown, compare
from rcil.site.picture import draw_step
from rcil.site.preflight import Preflight, Ready, preflight
from rcil.site.report import as_markdown, write_html
from rcil.site.request import RECORD, Request, check_folder, record_request, resumed
from rcil.site.schedule import (
    Amounts,
    Costs,
    Schedule,
    applied,
    default_budget,
    fit,
    recipe_document,
    summary,
    with_care,
    with_crop,
)
from rcil.site.trial import measure_costs
from rcil.site.verdict import Limits, Verdict, judge
from rcil.training.loader import Crops, CropSettings
from rcil.training.loop import Listener, StepJob, train_step
from rcil.training.run import spread
from rcil.training.tensorboard import both, tensorboard


@dataclass(frozen=True)
class Display:
    """Progress display of a run; shows nothing by default. The parts never overlap."""

    phase: Callable[[str], AbstractContextManager[Progress]] = lambda title: nullcontext(lambda done, total: None)
    """Shows the number of processed images under a title."""
    training: Callable[[], AbstractContextManager[Listener]] = lambda: nullcontext(lambda event: None)
    """Shows iterations and epochs."""
    announce: Callable[[Preflight], None] = lambda found: None
    """Shows the result of the pre-flight check."""
    explain: Callable[[str], None] = lambda line: None
    """Shows the chosen settings, with their reasons, in one line."""


def add_class(
    request: Request, output: Path, *, resume: bool = False, display: Display | None = None
) -> dict[str, Any]:
    """Check, train, compare with the old model and write all files; returns the content of `report.json`.

    A rejected or uncertain model is also written, with the reason in its metadata.

    Args:
        request: The request.
        output: Folder for the model, the report, pictures and `training/`.
        resume: Continue a run in this folder; otherwise a folder that holds a run is an error.
        display: Progress display; nothing by default.
    """
    display = display or Display()
    read_header(request.model)  # report an unreadable model first
    with join(request.training.device) as processes, deterministic(request.training.deterministic):
        if not processes.leads:
            return _teach(request, output, resume, Display(), processes)
        with working_in(output):
            return _teach(request, output, resume, display, processes)


def _teach(request: Request, output: Path, resume: bool, display: Display, processes: Processes) -> dict[str, Any]:
    """Every process checks, trains and compares its share of the images; only the first one writes results."""
    started, finished = time.perf_counter(), output / "report.json"
    with report_once(processes):
        request, begun = resumed(output, request), (output / RECORD).exists()
        check_folder(output, request, resume=resume)
        processes.wait()  # all processes have checked the folder
        if finished.exists():
            return read_report(finished)
        with display.phase("checking") as progress:
            found = preflight(request, progress, device=processes.device, processes=processes.count)
        display.announce(found)
        ready = found.require()
        if not begun:
            with display.phase("timing"):
                plan = make_plan(request, ready, processes, started=started)
            request = plan.request
            display.explain(plan.summary)
        processes.wait()
    if processes.leads:
        record_request(output, request)
        read_site(request.data, seed=request.seed)  # records the split
    with display.training() as listen:
        model = _train(request, ready, output / "training", processes, listen)
    with display.phase("comparing") as progress:
        pair = Pair(ready.model, model.to(processes.device), ready.data, request.scale)
        samples = ready.evaluation[1]
        forgetting, shown = compare(pair, samples, ready.labelled_in_evaluation, progress=progress, processes=processes)
        if processes.leads:
            pictures = draw(pair, shown, ready.labelled_in_evaluation, output / "overlays")
    if processes.leads:
        limits = limits_of(request)
        verdict = judge(forgetting, limits)
        save(output / "model.safetensors", model.network, judged(model.metadata, forgetting, verdict))
        report = {
            **verdict.as_document(),
            **asdict(limits),
            "method": request.method.name,
            "evaluated_on": ready.evaluation[0],
            **forgetting.as_document(),
            "recipe": recipe_document(request),
            "next": next_steps(verdict, _run_facts(request, ready, output, forgetting)),
            "preflight": found.as_document(),
            "pictures": pictures,
        }
        write_file(output / "report.md", as_markdown(report))
        write_html(output / "report.html", report, output / "overlays", output / "training" / "log.csv")
        write_json(finished, report)  # last, because it marks the run as finished
    processes.wait()
    return read_report(finished)


@dataclass(frozen=True)
class StepPlan:
    """What a run will do, and what it needs."""

    request: Request
    """The request with the final crop and schedule."""
    schedule: Schedule
    summary: str
    memory: int | None
    """Bytes that the training needs; None if nothing was measured."""

    def as_document(self) -> dict[str, Any]:
        """JSON-ready."""
        schedule = self.schedule
        return {
            "summary": self.summary,
            "iterations": schedule.iterations,
            "seconds": schedule.seconds,
            "memory": self.memory,
            "settings": recipe_document(self.request),
        }


def make_plan(
    request: Request, ready: Ready, processes: Processes = ALONE, *, started: float, measured: bool = False
) -> StepPlan:
    """Choose crop and schedule, if they are not given; a time budget is kept with a trial of some iterations.

    Args:
        request: The request.
        ready: What the checks found.
        processes: All processes choose the same.
        started: When the command was started, in seconds of `time.perf_counter`.
        measured: Measure time and memory also where nothing depends on them.
    """
    request = with_crop(request, ready.crop)
    request = with_care(request, len(ready.hidden), len(ready.shown))
    budget = default_budget(request, processes.device.type)
    amounts = Amounts(len(ready.train), len(ready.held_out), len(ready.evaluation[1]), ready.share)
    costs, memory = None, None
    if budget is not None or measured:
        step = _step(request, ready, Path(), processes)
        costs, memory = measure_costs(*step, (ready.data, ready.evaluation[1]))
        costs = _agreed(replace(costs, spent=time.perf_counter() - started), processes)
    schedule = fit(request, amounts, costs, budget)
    request = applied(request, schedule)
    return StepPlan(request, schedule, summary(request, schedule, budget), memory)


def _agreed(costs: Costs, processes: Processes) -> Costs:
    """The mean over the processes, which must all choose the same schedule."""
    values = processes.sum(torch.tensor(astuple(costs), dtype=torch.float64, device=processes.device))
    return Costs(*(values / processes.count).tolist())


def _train(request: Request, ready: Ready, folder: Path, processes: Processes, listen: Listener) -> Model:
    """The network of the kept epoch, with its metadata before it is judged."""
    step = _step(request, ready, folder, processes)
    if request.training.validate_every is not None:
        complete_masks(
            ready.model,
            step.job.metadata,
            ready.data,
            _validated(request, ready)[processes.rank :: processes.count],
            ready.labelled,
            folder / "held_out",
            scale=request.scale,
        )
    processes.wait()
    with ExitStack() as stack:
        if processes.leads:
            listen = both(stack.enter_context(tensorboard(folder)), listen)
        network = train_step(*step, listen)
    learned = {"architecture": network.arch, "features": step.method.measured}
    return Model(network, step.job.metadata.model_copy(update=learned))


class Step(NamedTuple):
    """The arguments of `train_step`."""

    job: StepJob
    student: Network
    previous: Model
    method: Method


def _step(request: Request, ready: Ready, folder: Path, processes: Processes) -> Step:
    """The step before its first iteration."""
    method, settings = make_method(request.method.name, **request.method.options), request.training
    index = ready.model.step + 1
    metadata = _metadata(request, ready)
    how = CropSettings.of(settings, request.scale, focus_from=len(ready.model.classes))
    crops = Crops(ready.train, label_table(ready.data, metadata), metadata, how, (request.seed, index))
    previous = trainable(ready, crops)
    torch.manual_seed(request.seed * 1000 + index)
    student = method.begin(previous.network, [c.name for c in ready.new])
    metadata = metadata.model_copy(update={"architecture": student.arch})
    data, held_out = completed(metadata, _validated(request, ready), folder / "held_out")
    job = StepJob(
        index=index,
        info=StepInfo(old=len(ready.model.classes), new=len(ready.new)),
        metadata=metadata,
        crops=crops,
        data=data,
        validation=held_out,
        settings=settings,
        scale=request.scale,
        folder=folder,
        processes=processes,
    )
    return Step(job, student, previous, method)


def _validated(request: Request, ready: Ready) -> tuple[Sample, ...]:
    """The held-out images that choose the best epoch."""
    return spread(ready.held_out, request.training.validate_images)


def trainable(ready: Ready, crops: Crops) -> Model:
    """The old model as the step begins from it; a folded one gets norms, fitted to training crops."""
    if not ready.norm_images:
        return ready.model
    numbers = spread(range(len(crops)), ready.norm_images)
    return replace(ready.model, network=unfold(ready.model.network, (crops[0, number][0][None] for number in numbers)))


def label_table(data: SegmentationData, metadata: Metadata) -> NDArray[np.uint8]:
    """Training label of every mask value [256]: the row of the class in the new model, background without one.

    Old classes that the masks name are trained with these labels; where the masks name nothing, the old model decides.
    """
    rows = {c.name: row for row, c in enumerate(metadata.classes)}
    table = np.full(256, BACKGROUND, np.uint8)
    for class_id, name in enumerate(data.names):
        table[class_id] = rows.get(name, BACKGROUND)
    table[IGNORE] = IGNORE
    return table


def limits_of(request: Request) -> Limits:
    """The limits of the gate."""
    keeps_old = METHODS[request.method.name].keeps_old
    return Limits(request.max_drop, request.min_new, request.max_background_drop, keeps_old)


def judged(metadata: Metadata, forgetting: Forgetting, verdict: Verdict) -> Metadata:
    """The metadata with the measured metrics, and the reason if the model is rejected or uncertain."""
    *earlier, last = metadata.lineage
    entry = last.model_copy(update={"metrics": {**last.metrics, **forgetting.as_metrics()}})
    marks = {mark: verdict.marked(mark) for mark in ("rejected", "uncertain")}
    return metadata.model_copy(update={"lineage": (*earlier, entry), **marks})


def _run_facts(request: Request, ready: Ready, output: Path, forgetting: Forgetting) -> Run:
    source, samples = ready.evaluation
    height, width = (round(side * request.scale) for side in read_rgb(samples[0].image).shape[:2])
    labelled = {name: images for name, (images, _) in ready.amounts.items()}
    return Run(
        *(request.model, request.data, request.classes, output, request.method.name, (height, width)),
        *(source, forgetting.images, forgetting.groups, labelled, repeated_options(request)),
    )


def repeated_options(request: Request) -> tuple[str, ...]:
    """The options of the request that are no defaults and belong to another attempt too: scale and limits."""
    default = Request(model=request.model, data=request.data, classes=request.classes)
    given = {
        "--scale": None if "scale" in request.derived else request.scale,
        **{
            f"--{name.replace('_', '-')}": value
            for name in ("max_drop", "min_new", "max_background_drop")
            if (value := getattr(request, name)) != getattr(default, name)
        },
    }
    return tuple(word for option, value in given.items() if value is not None for word in (option, f"{value:g}"))


def draw(pair: Pair, shown: Iterable[Shown], labelled: Collection[str], folder: Path) -> list[dict[str, str]]:
    """Draw one picture per sample; returns the file name, the sample and the caption of each."""
    pictures = []
    for index, (sample, caption) in enumerate(shown):
        name = f"{index:02d}_{sample.name.replace('/', '__')}.jpg"
        picture = draw_step(pair.look(sample), pair.new.classes, pair.count, labelled)
        write_image(folder / name, picture, quality=90)
        pictures.append({"file": name, "sample": sample.name, "caption": caption})
    return pictures


def _metadata(request: Request, ready: Ready) -> Metadata:
    """The metadata of the old model, extended by the new classes and the new step."""
    old = ready.model.metadata
    images = {"training_images": len(ready.train), "held_out_images": len(ready.held_out)}
    if ready.norm_images:
        images["norm_images"] = ready.norm_images
    entry = LineageEntry(
        step=old.step + 1,
        source="rcil add-class",
        parent_sha256=sha256_of(request.model),
        data_sha256=data_digest((*ready.train, *ready.held_out)),
        config=recorded(request),
        seed=request.seed,
        versions={"rcil": __version__, "torch": torch.__version__},
        metrics={name: float(count) for name, count in images.items()},
    )
    return old.model_copy(
        update={
            "classes": (*old.classes, *ready.new),
            "method": request.method.name,
            "step": old.step + 1,
            "lineage": (*old.lineage, entry),
            "rejected": None,
            "uncertain": None,
            "features": None,
        }
    )


def read_report(path: Path) -> dict[str, Any]:
    """Read the report of a finished run."""
    try:
        report: dict[str, Any] = parse_json(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise TrainingError(f"cannot read {path}", "Delete it to compare the models again.") from error
    return report
