"""The `rcil pick`, `rcil prelabel`, `rcil add-class` and `rcil refit` commands."""

from __future__ import annotations

import shlex
import time
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, cast

import typer

from rcil import defaults
from rcil.cli.completion import CHECKPOINTS, METHODS, RULES, files, one_of
from rcil.cli.console import make_notifier, print_dry_run, print_json, progress_line
from rcil.cli.labelling import TARGETS, print_next_steps
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
    announce_scale,
    with_device,
)
from rcil.core.errors import ConfigError, GateError
from rcil.core.log import is_quiet, log
from rcil.hardware.devices import announce_device

if TYPE_CHECKING:
    from rcil.labelling.selection import Rule
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
OptionalScale = Annotated[
    float | None, typer.Option("--scale", min=0.01, max=4, help="Factor by which images are resized for the network.")
]
MaxDrop = Annotated[float, typer.Option(min=0, help="Maximum drop in IoU points of a named old class.")]
MinNew = Annotated[float, typer.Option(min=0, max=100, help="Minimum IoU in percent of a new class; 0 accepts any.")]
MaxBackgroundDrop = Annotated[
    float | None,
    typer.Option(min=0, help="Maximum drop in IoU points of background, which has no limit by default."),
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
    scale: OptionalScale = None,
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


def pick(
    source: Annotated[Path, typer.Argument(help="A video file, a folder of images or a site folder.")],
    model: Start,
    output: Annotated[
        Path, typer.Option("-o", "--output", help="The folder to create; must not exist or must be empty.")
    ],
    count: Annotated[int, typer.Option(min=1, help="Maximum number of images.")] = defaults.PICKED,
    by: Annotated[
        str,
        typer.Option(
            metavar="mixed|uncertain|diverse|disagree",
            help="What makes a frame valuable; mixed means uncertain and different from those picked before.",
            autocompletion=one_of(*RULES),
        ),
    ] = "mixed",
    against: Annotated[
        Path | None,
        typer.Option(help="A second checkpoint, for frames where both disagree.", autocompletion=files(*CHECKPOINTS)),
    ] = None,
    every: Annotated[
        int | None,
        typer.Option(min=1, help="Look at every Nth frame (default: all images, and up to two frames/s of a video)."),
    ] = None,
    scale: TrainingScale = None,
    device: Device = None,
    dry_run: DryRunFlag = False,
    as_json: AsJson = False,
) -> None:
    """Choose the frames of a video or of a folder that are worth labelling next, without near-duplicates.

    pick.json lists them with scores and reasons, most valuable first; contact_sheet.jpg shows them.

    Example: `rcil pick drive.mp4 --from deployed.safetensors -o picked --count 50`

    Example: `rcil pick photos --from new.safetensors --against old.safetensors --by disagree -o disputed`
    """
    say = make_notifier(as_json=as_json)
    announce_device(device, say)
    announce_scale([model], scale, say)
    from rcil.labelling.pick import dry_run as dry
    from rcil.labelling.pick import pick as run

    rule = cast("Rule", by)
    if dry_run:
        plan = dry(source, model, output, count=count, by=rule, against=against, every=every)
        print_dry_run(plan, as_json=as_json)
        return
    with progress_line("looking at frames") as progress:
        document = run(
            source,
            model,
            output,
            count=count,
            by=rule,
            against=against,
            every=every,
            scale=scale,
            device=device or "auto",
            progress=progress,
        )
    if as_json:
        print_json(document)
        return
    picked, left_out = document["picked"], document["near_duplicates"]
    typer.echo(f"{output}: {len(picked)} of {document['frames']} frames; {left_out} near-duplicates left out; first:")
    for entry in picked[:5]:
        typer.echo(f"  {entry['image']}: {entry['reason']}")
    words = ["rcil", "prelabel", "--from", str(model), "--images", str(output), "-o", f"{output}_labelled"]
    words += [] if scale is None else ["--scale", f"{scale:g}"]
    typer.echo(f"look at {output / 'contact_sheet.jpg'}, then\n  {shlex.join(words)}")


def prelabel(
    model: Start,
    images: Annotated[Path, typer.Option(help="A folder of images or a site folder; existing masks are not read.")],
    output: Annotated[
        Path, typer.Option("-o", "--output", help="The site folder to create; must not exist or must be empty.")
    ],
    min_confidence: Annotated[
        float, typer.Option(min=0, max=1, help="Pixels with a lower confidence become 255 (ignore).")
    ] = defaults.MIN_CONFIDENCE,
    scale: TrainingScale = None,
    overlays: Annotated[bool, typer.Option("--overlays", help="Also draw the masks over the images.")] = False,
    kind: Annotated[
        str | None,
        typer.Option(
            "--to",
            metavar="|".join(TARGETS),
            help="Write for a labelling tool instead of a site folder.",
            autocompletion=one_of(*TARGETS),
        ),
    ] = None,
    device: Device = None,
    dry_run: DryRunFlag = False,
    as_json: AsJson = False,
) -> None:
    """Label new images with the predictions of a model, as a site folder to correct and extend with a new class.

    prelabel.json lists the images, least confident first. With --to, the labels can be corrected in a labelling tool
    and come back with `rcil data convert`.

    Example: `rcil prelabel --from deployed.safetensors --images photos -o my_site --overlays`

    Example: `rcil prelabel --from deployed.safetensors --images photos -o for_cvat --to cvat`
    """
    say = make_notifier(as_json=as_json)
    announce_device(device, say)
    announce_scale([model], scale, say)
    from rcil.labelling.prelabel import dry_run as dry
    from rcil.labelling.prelabel import prelabel as run

    if dry_run:
        print_dry_run(dry(model, images, output, overlays=overlays, kind=kind), as_json=as_json)
        return
    with progress_line("labelling") as progress:
        document = run(
            model,
            images,
            output,
            min_confidence=min_confidence,
            scale=scale,
            overlays=overlays,
            kind=kind,
            device=device or "auto",
            progress=progress,
        )
    if as_json:
        print_json(document)
        return
    typer.echo(f"{output}: {len(document['images'])} images; review first:")
    for entry in document["images"][:5]:
        typer.echo(f"  {entry['image']}: {entry['mean_confidence']:.1%} confident, {entry['unsure']:.1%} ignored")
    if kind is not None:
        print_next_steps(output, kind)
        return
    typer.echo(f"next: name the new class in {output / document['classes_file']}, correct the masks and label it, then")
    words = ["rcil", "add-class", "--from", str(model), "--data", str(output), "--class", "NAME", "-o", "NAME"]
    typer.echo(f"  {shlex.join(words)}")


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
    say = make_notifier(as_json=as_json)
    announce_device(device, say)
    announce_scale([model], scale, say)
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
