"""Names of annotation formats for the commands, and what to do in a labelling tool.

The names are duplicated here so that `--help` and completion do not import OpenCV; a test compares them.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from rcil.cli.completion import one_of

SOURCES = ("cvat", "coco", "label-studio", "labelme", "roboflow", "via", "yolo")
"""Formats that `rcil data convert` reads."""
TARGETS = ("cvat", "cvat-masks", "coco", "labelme", "label-studio")
"""Formats that `rcil data export` writes."""
LabellingTool = Annotated[
    str, typer.Option("--to", metavar="|".join(TARGETS), help="Format to write.", autocompletion=one_of(*TARGETS))
]
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


def print_labelled(output: Path, document: dict[str, Any]) -> None:
    """Print how many images were labelled, and the least confident of them."""
    typer.echo(f"{output}: {len(document['images'])} images; review first:")
    for entry in document["images"][:5]:
        typer.echo(f"  {entry['image']}: {entry['mean_confidence']:.1%} confident, {entry['unsure']:.1%} ignored")


def print_next_steps(folder: Path, kind: str) -> None:
    """Print how the tool gets the export, and how the labels come back."""
    typer.echo(f"next: {_STEPS[kind].format(folder=folder, root=folder.absolute())}")
    typer.echo("then: rcil data convert EXPORT NEW_SITE")
