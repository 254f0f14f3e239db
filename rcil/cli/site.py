"""The `rcil prelabel` and `rcil add-class` commands."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from rcil import defaults
from rcil.cli.completion import METHODS, one_of
from rcil.cli.console import make_notifier, print_dry_run, print_json, progress_line
from rcil.cli.options import AsJson, Device, DryRunFlag, Overrides, Resume, Scale, SiteData, Start, with_device
from rcil.core.errors import ConfigError, GateError
from rcil.core.log import is_quiet, log
from rcil.hardware.devices import announce_device

if TYPE_CHECKING:
    from rcil.site.request import Request

Method = Annotated[
    str | None,
    typer.Option(help=f"Continual learning method (default: {defaults.METHOD}).", autocompletion=one_of(*METHODS)),
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
    epochs: Annotated[int, typer.Option(min=1, help="Number of epochs.")] = defaults.EPOCHS,
    lr: Annotated[float, typer.Option(help="Initial learning rate.")] = defaults.LR,
    batch: Annotated[int, typer.Option(min=2, help="Batch size.")] = defaults.BATCH,
    crop: Annotated[int, typer.Option(min=32, help="Side of the training crops in pixels.")] = defaults.CROP,
    workers: Annotated[int, typer.Option(min=0, help="Number of data loading processes.")] = defaults.WORKERS,
    scale: Scale = defaults.SCALE,
    max_drop: MaxDrop = defaults.MAX_DROP,
    min_new: MinNew = defaults.MIN_NEW,
    max_background_drop: MaxBackgroundDrop = None,
    strict: Strict = False,
    seed: Annotated[int, typer.Option(min=0, help="Random seed.")] = defaults.SEED,
    override: Overrides = None,
    device: Device = None,
    resume: Resume = False,
    dry_run: DryRunFlag = False,
    as_json: AsJson = False,
) -> None:
    """Teach a model one more class from labelled images of a site, and measure what it forgot.

    Errors in images, masks or names end the command with exit code 6 before anything is written. If the measurements
    show that an old class lost more than --max-drop points, or that a new class does not reach --min-new, the exit code
    is 8 and the model is marked as rejected: `rcil info` shows the mark, and `rcil-export fold` refuses the model. If
    they do not suffice to decide, the verdict is uncertain: a warning with exit code 0. For several GPUs: `torchrun
    --nproc-per-node 2 -m rcil add-class ...`.

    Example: `rcil add-class --from step0.safetensors --data my_site --class forklift -o forklift`
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
    from rcil.cli.tables import print_preflight
    from rcil.core.files import check_writable
    from rcil.hardware.processes import device_for, started
    from rcil.site.preflight import preflight

    rank, processes = started()
    if rank > 0:
        return
    announce_training(request.training, processes, make_notifier(as_json=as_json))
    check_writable(output)
    with progress_line("checking") as checked:
        found = preflight(request, checked, device=device_for(request.training.device), processes=processes)
    if as_json:
        print_json(found.as_document())
    else:
        print_preflight(found)
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
    announce = (lambda found: None) if as_json or is_quiet() else print_preflight
    display = Display(progress_line, lambda: progress(quiet=as_json), announce)
    report = run(request, output, resume=resume, display=display)
    if rank == 0 and as_json:
        print_json(report)
    elif rank == 0:
        print_report(report)
        typer.echo(f"model, report and pictures in {output}")
    if rank == 0 and report["rejected"]:
        raise GateError(
            f"{output / 'model.safetensors'} is marked as rejected: {report['rejected']}",
            f"Look at {output / 'report.html'}. {report['next'][0]['text']}",
        )
    if rank == 0 and as_json and report["verdict"] == "uncertain":
        log.warning("%s is marked as uncertain: %s", output / "model.safetensors", report["reason"])
    leave()


def prelabel(
    model: Start,
    images: Annotated[Path, typer.Option(help="A folder of images or a site folder; existing masks are not read.")],
    output: Annotated[
        Path, typer.Option("-o", "--output", help="The site folder to create; must not exist or must be empty.")
    ],
    min_confidence: Annotated[
        float, typer.Option(min=0, max=1, help="Pixels with a lower confidence become 255 (ignore).")
    ] = defaults.MIN_CONFIDENCE,
    scale: Scale = defaults.SCALE,
    overlays: Annotated[bool, typer.Option("--overlays", help="Also draw the masks over the images.")] = False,
    device: Device = None,
    dry_run: DryRunFlag = False,
    as_json: AsJson = False,
) -> None:
    """Label new images with the predictions of a model, as a site folder to correct and extend with a new class.

    prelabel.json lists the images, least confident first.

    Example: `rcil prelabel --from deployed.safetensors --images photos -o my_site --overlays`
    """
    announce_device(device, make_notifier(as_json=as_json))
    from rcil.site.prelabel import dry_run as dry
    from rcil.site.prelabel import prelabel as run

    if dry_run:
        print_dry_run(dry(model, images, output, overlays=overlays), as_json=as_json)
        return
    with progress_line("labelling") as progress:
        document = run(
            model,
            images,
            output,
            min_confidence=min_confidence,
            scale=scale,
            overlays=overlays,
            device=device or "auto",
            progress=progress,
        )
    if as_json:
        print_json(document)
        return
    typer.echo(f"{output}: {len(document['images'])} images; review first:")
    for entry in document["images"][:5]:
        typer.echo(f"  {entry['image']}: {entry['mean_confidence']:.1%} confident, {entry['unsure']:.1%} ignored")
    typer.echo(f"next: name the new class in {output / document['classes_file']}, correct the masks and label it, then")
    typer.echo(
        f"  rcil add-class --from CHECKPOINT --data {output} --class NAME -o NAME   (CHECKPOINT must not be folded)"
    )
