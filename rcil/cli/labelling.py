"""The commands `rcil pick` and `rcil prelabel`, names of annotation formats, and what to do in a labelling tool.

The names are duplicated here so that `--help` and completion do not import OpenCV; a test compares them.
"""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, cast

import typer

from rcil import defaults
from rcil.cli.announce import announce_inference
from rcil.cli.completion import CHECKPOINTS, RULES, files, one_of
from rcil.cli.console import make_notifier, print_dry_run, print_json, progress_line
from rcil.cli.options import AsJson, Device, DryRunFlag, Start, TrainingScale

if TYPE_CHECKING:
    from rcil.labelling.selection import Rule

SOURCES = ("cvat", "coco", "label-studio", "labelme", "roboflow", "via", "yolo")
"""Formats that `rcil data convert` reads."""
TARGETS = ("cvat", "cvat-masks", "coco", "labelme", "label-studio")
"""Formats that `rcil data export` writes."""
LabellingTool = Annotated[
    str, typer.Option("--to", metavar="|".join(TARGETS), help="Format to write.", autocompletion=one_of(*TARGETS))
]
Unlabelled = Annotated[Path, typer.Option(help="A folder of images or a site folder; existing masks are not read.")]
NewSiteOption = Annotated[
    Path, typer.Option("-o", "--output", help="The site folder to create; must not exist or must be empty.")
]
MinConfidence = Annotated[float, typer.Option(min=0, max=1, help="Pixels with a lower confidence become 255 (ignore).")]
Overlays = Annotated[bool, typer.Option("--overlays", help="Also draw the masks over the images.")]
_STEPS = {
    "cvat": "in CVAT: create a task from {folder}/images, then upload {folder}/annotations.xml as 'CVAT 1.1'",
    "cvat-masks": "in CVAT: create a task from {folder}/JPEGImages, then upload the other files of {folder} as a ZIP, "
    "as 'Segmentation mask 1.1'",
    "coco": "import {folder}/annotations/*.json together with {folder}/images",
    "labelme": "labelme {folder} --labels {folder}/labels.txt",
    "label-studio": "start Label Studio with LABEL_STUDIO_LOCAL_FILES_SERVING_ENABLED=true and "
    "LABEL_STUDIO_LOCAL_FILES_DOCUMENT_ROOT={root}, paste {folder}/config.xml as the labelling interface, "
    "add {root}/images as local storage, and import {folder}/tasks.json",
}


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
    announce_inference(device, [model], scale, make_notifier(as_json=as_json))
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
    images: Unlabelled,
    output: NewSiteOption,
    min_confidence: MinConfidence = defaults.MIN_CONFIDENCE,
    scale: TrainingScale = None,
    overlays: Overlays = False,
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
    announce_inference(device, [model], scale, make_notifier(as_json=as_json))
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
    print_labelled(output, document)
    if kind is not None:
        print_next_steps(output, kind)
        return
    typer.echo(f"next: name the new class in {output / document['classes_file']}, correct the masks and label it, then")
    words = ["rcil", "add-class", "--from", str(model), "--data", str(output), "--class", "NAME", "-o", "NAME"]
    typer.echo(f"  {shlex.join(words)}")


def print_labelled(output: Path, document: dict[str, Any]) -> None:
    """Print how many images were labelled, and the least confident of them."""
    typer.echo(f"{output}: {len(document['images'])} images; review first:")
    for entry in document["images"][:5]:
        typer.echo(f"  {entry['image']}: {entry['mean_confidence']:.1%} confident, {entry['unsure']:.1%} ignored")


def print_next_steps(folder: Path, kind: str) -> None:
    """Print how the tool gets the export, and how the labels come back."""
    typer.echo(f"next: {_STEPS[kind].format(folder=folder, root=folder.absolute())}")
    typer.echo("then: rcil data convert EXPORT NEW_SITE")
