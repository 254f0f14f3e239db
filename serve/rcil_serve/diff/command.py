"""`rcil-serve diff`; `rcil_serve.cli` registers it."""

from __future__ import annotations

from fractions import Fraction
from pathlib import Path
from typing import Annotated

import typer

from rcil.console import print_json
from rcil_serve.options import (
    AlphaOption,
    AttemptsOption,
    BatchOption,
    CrfOption,
    DeviceOption,
    EndOption,
    FpsOption,
    JsonOption,
    MaxFramesOption,
    OverlapOption,
    SizeOption,
    SourceArgument,
    StartOption,
    StrideOption,
    ThreadsOption,
    TileOption,
    TimeoutOption,
    layout_of,
)
from rcil_serve.video.command import frame_bar


def diff(
    old: Annotated[Path, typer.Argument(help="The model that was there: .onnx or .engine of rcil-export.")],
    new: Annotated[Path, typer.Argument(help="The model that is to take its place.")],
    source: SourceArgument,
    output: Annotated[
        Path, typer.Option("-o", "--output", help="Folder for diff.mp4, diff.html, diff.json and diff.receipt.json.")
    ],
    view: Annotated[
        str, typer.Option(help="side: old, new and changes; wipe: a line between old and new; none: no video.")
    ] = "side",
    stride: StrideOption = 1,
    start: StartOption = 0.0,
    end: EndOption = None,
    max_frames: MaxFramesOption = None,
    fps: FpsOption = 10.0,
    size: SizeOption = None,
    tile: TileOption = None,
    overlap: OverlapOption = 64,
    batch: BatchOption = 1,
    alpha: AlphaOption = 0.5,
    crf: CrfOption = 21,
    timeout: TimeoutOption = 10.0,
    attempts: AttemptsOption = 6,
    device: DeviceOption = "auto",
    threads: ThreadsOption = None,
    as_json: JsonOption = False,
) -> None:
    """Show what changes when NEW takes the place of OLD.

    Both models run on SOURCE; their classes are matched by name, so NEW may have more, fewer or others. Every pixel
    that changes is of one kind: forgotten, learned, taken, appeared, swapped or lost. The page ranks the worst seconds.

    Example: `rcil-serve diff deployed/model.onnx candidate/model.onnx yard.mp4 -o changes`
    """
    from rcil_serve.diff.run import DiffRequest, run_diff
    from rcil_serve.endings import complain, sigterm_as_interrupt
    from rcil_serve.video.sources import Selection
    from rcil_serve.video.sources.live import LiveOptions

    request = DiffRequest(
        old=old,
        new=new,
        source=source,
        out=output,
        view=view,
        layout=layout_of(size, tile, overlap, batch),
        selection=Selection(stride, start, end, max_frames),
        live=LiveOptions(timeout, attempts),
        rate=Fraction(fps).limit_denominator(1001),
        alpha=alpha,
        crf=crf,
        device=device,
        threads=threads,
    )
    with frame_bar() as show, sigterm_as_interrupt():
        result = run_diff(request, (lambda text: None) if as_json else typer.echo, show)
    if as_json:
        print_json({"receipt": result.document, "warnings": result.warnings, **result.found.as_document()})
    else:
        typer.echo(result.headline)
        for path in (*result.outputs.values(), request.receipt):
            typer.echo(f"  {path}")
    complain(result.document, request.receipt, "compared")
