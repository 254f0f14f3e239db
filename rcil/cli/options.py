"""Options shared by several commands."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from rcil.cli.completion import CHECKPOINTS, files, one_of, tasks
from rcil.core.device_names import NAMES, check_device_name

AsJson = Annotated[bool, typer.Option("--json", help="Print only JSON to standard output.")]
DryRunFlag = Annotated[
    bool, typer.Option("--dry-run", help="Check everything and report what the run would need; write nothing.")
]
TaskFile = Annotated[Path, typer.Argument(help="A task file (YAML) or a preset.", autocompletion=tasks)]
Trust = Annotated[
    list[Path] | None,
    typer.Option(
        "--trust", help="Public key (PEM). Models not signed with one of the keys are rejected. Can be repeated."
    ),
]
Overrides = Annotated[
    list[str] | None, typer.Option("--set", help="Override a key of the task, for example training.batch=8.")
]
Resume = Annotated[bool, typer.Option("--resume", help="Continue an interrupted run in this folder.")]
Seeds = Annotated[int, typer.Option("--seeds", min=1, help="Number of runs per method, with consecutive seeds.")]
TrainingScale = Annotated[
    float | None,
    typer.Option(
        "--scale",
        min=0.01,
        max=4,
        help="Factor by which images are resized for the network. [default: that of the model's training]",
    ),
]
SiteData = Annotated[Path, typer.Option("--data", help="A site folder: images/, masks/, classes.txt.")]
SiteArgument = Annotated[Path, typer.Argument(help="A site folder: images/, masks/, classes.txt.")]
NewSite = Annotated[Path, typer.Argument(help="The site folder to create; must not exist or must be empty.")]
Start = Annotated[
    Path,
    typer.Option("--from", help="The checkpoint (.safetensors) to start from.", autocompletion=files(*CHECKPOINTS)),
]
VoidBackground = Annotated[
    bool,
    typer.Option(
        "--void-background", help='Ignore background in the masks, if it means "unlabelled" there, as in CamVid.'
    ),
]
Device = Annotated[
    str | None,
    typer.Option(
        "--device",
        metavar="auto|cpu|cuda[:N]",
        help="Where the network runs; auto uses a GPU if torch finds one.",
        callback=lambda name: name if name is None else check_device_name(name),
        autocompletion=one_of(*NAMES),
    ),
]
MaxImages = Annotated[int, typer.Option("--max-images", min=1, help="Maximum number of images.")]


def with_device(overrides: list[str] | None, device: str | None) -> list[str]:
    """Append --device to the overrides, so that it takes precedence over the task file and --set."""
    return [*(overrides or ()), *([] if device is None else [f"training.device={device}"])]
