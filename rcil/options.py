"""Options that several commands share, so that they read the same everywhere."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from rcil.completion import CHECKPOINTS, files, one_of, tasks
from rcil.device_names import NAMES, check_device_name

AsJson = Annotated[bool, typer.Option("--json", help="Print JSON, and nothing else, on standard output.")]
DryRunFlag = Annotated[
    bool, typer.Option("--dry-run", help="Check everything and say what it would take; write nothing.")
]
TaskFile = Annotated[Path, typer.Argument(help="A task file (YAML) or a preset.", autocompletion=tasks)]
Trust = Annotated[
    list[Path] | None,
    typer.Option("--trust", help="Public key (PEM): refuse models that its owner did not sign. Can be repeated."),
]
Overrides = Annotated[list[str] | None, typer.Option("--set", help="Override a key of the task: training.batch=8.")]
Resume = Annotated[bool, typer.Option("--resume", help="Continue an interrupted run in this folder.")]
Seeds = Annotated[int, typer.Option("--seeds", min=1, help="Runs of each, with seeds one after another.")]
Scale = Annotated[
    float, typer.Option("--scale", min=0.01, max=4, help="Size at which the network sees images, as a factor.")
]
SiteData = Annotated[Path, typer.Option("--data", help="A site folder: images/, masks/, classes.txt.")]
SiteArgument = Annotated[Path, typer.Argument(help="A site folder: images/, masks/, classes.txt.")]
NewSite = Annotated[Path, typer.Argument(help="The site folder to make; must not exist, or be empty.")]
Start = Annotated[
    Path,
    typer.Option("--from", help="The checkpoint (.safetensors) to start from.", autocompletion=files(*CHECKPOINTS)),
]
Device = Annotated[
    str | None,
    typer.Option(
        "--device",
        metavar="auto|cpu|cuda[:N]",
        help="Where the network runs. auto: on a GPU where torch has one.",
        callback=lambda name: name if name is None else check_device_name(name),
        autocompletion=one_of(*NAMES),
    ),
]
MaxImages = Annotated[int, typer.Option("--max-images", min=1, help="At most this many images.")]


def with_device(overrides: list[str] | None, device: str | None) -> list[str]:
    """Overrides of a task with what --device says, which counts more than the task and --set."""
    return [*(overrides or ()), *([] if device is None else [f"training.device={device}"])]
