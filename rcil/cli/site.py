"""The commands `rcil add-class` and `rcil refit`."""

from __future__ import annotations

import shlex
import time
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from rcil import defaults
from rcil.cli.announce import announce_inference
from rcil.cli.completion import CHECKPOINTS, METHODS, files, one_of
from rcil.cli.console import make_notifier, print_json, progress_line
from rcil.cli.options import (
    AsJson,
    Device,
    DryRunFlag,
    Overrides,
    Resume,
    SiteData,
    Start,
    TrainingScale,
    VoidBackground,
    with_device,
)
from rcil.core.errors import ConfigError, GateError
from rcil.core.log import is_quiet, log

if TYPE_CHECKING:
    from rcil.site.request import Request

Method = Annotated[
    str | None,
    typer.Option(help=f"Continual learning method (default: {defaults.METHOD}).", autocompletion=one_of(*METHODS)),
]
Minutes = Annotated[
    float | None,
    typer.Option(
        min=0.1,
        max=defaults.MAX_MINUTES,
        help=f"Time limit of the whole command (default: {defaults.CPU_MINUTES:g} on a CPU, none on a GPU).",
    ),
]
MaxDrop = Annotated[float, typer.Option(min=0, help="Maximum drop in IoU points of a named old class.")]
MinNew = Annotated[float, typer.Option(min=0, max=100, help="Minimum IoU in percent of a new class; 0 accepts any.")]
MaxBackgroundDrop = Annotated[
    float | None, typer.Option(min=0, help="Maximum drop in IoU points of background, which has no limit by default.")
]
Strict = Annotated[
    bool,
    typer.Option("--strict", help="Keep the old network unchanged and train only the classifier row of the new class."),
]


def add_class(
    model: Start,
    data: SiteData,
    names: Annotated[list[str], typer.Option("--class", help="Name of a class to add. Can be repeated.")],
    output: Annotated[Path, typer.Option("-o", "--output", help="Folder for the model, the report and pictures.")],
    method: Method = None,
    minutes: Minutes = None,
    epochs: Annotated[int | None, typer.Option(min=1, help="Passes over the images, instead of --minutes.")] = None,
    lr: Annotated[float | None, typer.Option(max=defaults.MAX_LR, help="Initial learning rate.")] = None,
    batch: Annotated[int | None, typer.Option(min=2, max=defaults.MAX_BATCH, help="Batch size.")] = None,
    crop: Annotated[
        int | None, typer.Option(min=32, max=defaults.MAX_CROP, help="Side of the training crops in pixels.")
    ] = None,
    workers: Annotated[int, typer.Option(min=0, help="Number of data loading processes.")] = defaults.WORKERS,
    scale: TrainingScale = None,
    max_drop: MaxDrop = defaults.MAX_DROP,
    min_new: MinNew = defaults.MIN_NEW,
    max_background_drop: MaxBackgroundDrop = None,
    strict: Strict = False,
    seed: Annotated[int, typer.Option(min=0, max=defaults.MAX_SEED, help="Random seed.")] = defaults.SEED,
    override: Overrides = None,
    device: Device = None,
    resume: Resume = False,
    dry_run: DryRunFlag = False,
    as_json: AsJson = False,
) -> None:
    """Teach a model one more class from labelled images of a site, and measure what it forgot.

    Settings that are not given are those that the checkpoint was trained with. Crops fit into the images. The training
    is as long as the images call for, as far as --minutes allow. One line shows what was chosen; --dry-run also shows
    the memory.

    Errors in images, masks or names end the command with exit code 6 before anything is written. If the measurements
    show that an old class lost more than --max-drop points, or that a new class does not reach --min-new, the exit code
    is 8 and the model is marked as rejected: `rcil info` shows the mark, and `rcil-export fold` refuses the model. If
    they do not suffice to decide, the verdict is uncertain: a warning with exit code 0. For several GPUs: `torchrun
    --nproc-per-node 2 -m rcil add-class ...`.

    Examples:
        rcil add-class --from step0.safetensors --data my_site --class forklift -o forklift

        rcil add-class --from step0.safetensors --data my_site --class forklift -o forklift --minutes 30
    """
    if strict and method not in (None, "strict"):
        raise ConfigError(f"--strict cannot be combined with --method {method}", "Use only one of them.")
    from rcil.site.request import step_request

    request = step_request(
        model,
        data,
        names,
        method="strict" if strict else method or defaults.METHOD,
        training={"epochs": epochs, "lr": lr, "batch": batch, "crop": crop, "workers": workers},
        overrides=with_device(override, device),
        scale=scale,
        minutes=minutes,
        max_drop=max_drop,
        min_new=min_new,
        max_background_drop=max_background_drop,
        seed=seed,
    )
    if dry_run:
        _check_request(request, output, as_json=as_json)
    else:
        _teach(request, output, resume=resume, as_json=as_json)


def _check_request(request: Request, output: Path, *, as_json: bool) -> None:
    """Print what the checks before training find; raise if they find errors."""
    from rcil.cli.progress import announce_training
    from rcil.cli.tables import print_plan, print_preflight
    from rcil.core.files import check_writable
    from rcil.hardware import processes as launched
    from rcil.site.preflight import preflight
    from rcil.site.run import make_plan

    rank, processes = launched.started()
    if rank > 0:
        return
    announce_training(request.training, processes, make_notifier(as_json=as_json))
    check_writable(output)
    started, device = time.perf_counter(), launched.device_for(request.training.device)
    with progress_line("checking") as checked:
        found = preflight(request, checked, device=device, processes=processes)
    if not as_json:
        print_preflight(found)
    plan = None
    if found.ready is not None:
        with progress_line("timing"):
            plan = make_plan(request, found.ready, launched.Processes(0, 1, device), started=started, measured=True)
    if as_json:
        print_json({**found.as_document(), **({} if plan is None else {"plan": plan.as_document()})})
    elif plan is not None:
        print_plan(plan)
    found.require()


def _teach(request: Request, output: Path, *, resume: bool, as_json: bool) -> None:
    """Add the classes and print the report; raise if the new model is rejected."""
    from rcil.cli.progress import announce_training, progress
    from rcil.cli.tables import print_preflight, print_report
    from rcil.hardware.processes import leave, started
    from rcil.site.run import Display
    from rcil.site.run import add_class as run

    rank, processes = started()
    if rank == 0:
        announce_training(request.training, processes, make_notifier(as_json=as_json))
    display = Display(progress_line, lambda: progress(quiet=as_json))
    if not (as_json or is_quiet()):
        display = replace(display, announce=print_preflight, explain=typer.echo)
    report = run(request, output, resume=resume, display=display)
    if rank == 0 and as_json:
        print_json(report)
    elif rank == 0:
        print_report(report)
        typer.echo(f"model, report and pictures in {output}")
    if rank == 0 and report["rejected"]:
        raise GateError(
            f"{output / 'model.safetensors'} is marked as rejected: {report['rejected']}",
            f"Look at {output / 'report.html'}, which ends with what to do next.",
        )
    if rank == 0 and as_json and report["verdict"] == "uncertain":
        log.warning("%s is marked as uncertain: %s", output / "model.safetensors", report["reason"])
    leave()


def refit(
    model: Start,
    data: SiteData,
    output: Annotated[Path, typer.Option("-o", "--output", help="The checkpoint to write.")],
    previous: Annotated[
        Path | None,
        typer.Option(
            help="The checkpoint before the last step, which predicts old classes where the masks name nothing.",
            autocompletion=files(*CHECKPOINTS),
        ),
    ] = None,
    split: Annotated[str, typer.Option(help="The split to fit to.")] = defaults.TRAINING_SPLIT,
    count: Annotated[
        int, typer.Option(min=1, max=1_000_000, help="Approximate number of images to look at.")
    ] = defaults.REFIT_IMAGES,
    void_background: VoidBackground = False,
    scale: TrainingScale = None,
    device: Device = None,
    as_json: AsJson = False,
) -> None:
    """Fit the classifier rows of a checkpoint to images, without training the network.

    Works for checkpoints of every method, imported ones too. It needs forward passes only, and costs nothing at
    inference. Without --previous, the masks must name all classes of the model.

    Example: `rcil refit --from step1.safetensors --previous step0.safetensors --data my_site -o better.safetensors`
    """
    announce_inference(device, [model], scale, make_notifier(as_json=as_json))
    from rcil.site.refit import refit as run

    with progress_line("looking at images") as progress:
        document = run(
            model,
            data,
            output,
            previous=previous,
            split=split,
            images=count,
            void_background=void_background,
            scale=scale,
            device=device or "auto",
            progress=progress,
        )
    if as_json:
        print_json(document)
        return
    typer.echo(f"{output}: {len(document['classes'])} rows fitted to {document['pixels']} pixels; compare with")
    typer.echo(f"  rcil eval {shlex.quote(str(model))} {shlex.quote(str(output))} --data {shlex.quote(str(data))}")
