"""Options that several commands share, so that they read the same everywhere."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from rcil.completion import DEPLOYED, files, one_of
from rcil.options import AsJson, DryRunFlag, Trust
from rcil_export.devices import DEVICES

if TYPE_CHECKING:
    from rcil_serve.predictor import Layout

__all__ = ["AsJson", "DryRunFlag"]

MODELS = files(*DEPLOYED)
SourceArgument = Annotated[
    str, typer.Argument(help="Video, folder, 'pattern*.jpg', list.txt, camera number, rtsp:// or http:// address.")
]
ModelOption = Annotated[
    Path, typer.Option("-m", "--model", help="model.onnx or model.engine of rcil-export.", autocompletion=MODELS)
]
PreviousOption = Annotated[
    Path | None, typer.Option("--previous", help="The step before it, to compare with.", autocompletion=MODELS)
]
DeviceOption = Annotated[
    str, typer.Option(help="auto, cpu, cuda or tensorrt; engines run on the GPU.", autocompletion=one_of(*DEVICES))
]
ThreadsOption = Annotated[int | None, typer.Option(min=1, help="Threads on the CPU; all cores if not given.")]
TrustOption = Trust
SizeOption = Annotated[
    str | None,
    typer.Option(metavar="HxW", help="Height and width of the model's input; pictures keep their proportions."),
]
TileOption = Annotated[int | None, typer.Option(min=16, help="Cut large pictures into squares of this side.")]
OverlapOption = Annotated[int, typer.Option(min=0, help="Pixels that neighbouring squares share.")]
BatchOption = Annotated[int, typer.Option(min=1, help="Pictures, or squares, to run at once.")]
AlphaOption = Annotated[float, typer.Option(min=0, max=1, help="Weight of the class colours.")]
ClassesOption = Annotated[str, typer.Option(help="Paint these classes only, for example forklift,pallet.")]
LegendOption = Annotated[bool, typer.Option("--legend/--no-legend", help="Class names in the corner.")]
StrideOption = Annotated[int, typer.Option(help="Every how many-th frame.")]
StartOption = Annotated[float, typer.Option(help="Seconds to skip.")]
EndOption = Annotated[float | None, typer.Option(help="Stop at this second.")]
MaxFramesOption = Annotated[int | None, typer.Option(help="Stop after so many frames.")]
FpsOption = Annotated[float, typer.Option(min=0.01, help="Frames a second of image files.")]
CrfOption = Annotated[int, typer.Option(min=0, max=51, help="Quality of the video; less is better.")]
TimeoutOption = Annotated[float, typer.Option(min=0.1, help="Seconds without data before connecting again.")]
AttemptsOption = Annotated[int, typer.Option(min=1, help="Failed connections in a row before giving up.")]
TimelineOption = Annotated[Path | None, typer.Option("--timeline", help="Plot of every class's area over time, .png.")]
ReceiptOption = Annotated[
    Path | None, typer.Option("--receipt", help="Receipt of the run; beside the first output if not given.")
]


def layout_of(size: str | None, tile: int | None, overlap: int, batch: int) -> Layout:
    """How images go into a model, as the options say."""
    from rcil_export.shapes import parse_size
    from rcil_serve.predictor import Layout

    return Layout(None if size is None else parse_size(size), tile, overlap, batch)


def names_of(text: str) -> tuple[str, ...]:
    """`forklift, pallet` -> those names."""
    return tuple(name.strip() for name in text.split(",") if name.strip())
