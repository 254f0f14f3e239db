"""`rcil-serve diff`; `rcil_serve.cli.app` registers it."""

from __future__ import annotations

from fractions import Fraction
from pathlib import Path
from typing import Annotated

import typer

from rcil.cli.completion import one_of
from rcil.cli.console import make_notifier, print_dry_run, print_json
from rcil_serve.cli.options import (
    MODELS,
    AlphaOption,
    AsJson,
    AttemptsOption,
    BatchOption,
    CrfOption,
    DeviceOption,
    DryRunFlag,
    EndOption,
    FpsOption,
    MaxFramesOption,
    OverlapOption,
    SizeOption,
    SourceArgument,
    StartOption,
    StrideOption,
    ThreadsOption,
    TileOption,
    TimeoutOption,
    TrustOption,
    layout_of,
)
from rcil_serve.video.command import frame_bar


def diff(
    old: Annotated[
        Path,
        typer.Argument(help="The model that was there: .onnx or .engine of rcil-export.", autocompletion=MODELS),
    ],
    new: Annotated[Path, typer.Argument(help="The model that is to take its place.", autocompletion=MODELS)],
    source: SourceArgument,
    output: Annotated[
        Path, typer.Option("-o", "--output", help="Folder for diff.mp4, diff.html, diff.json and diff.receipt.json.")
    ],
    view: Annotated[
        str,
        typer.Option(
            help="side: old, new and changes; wipe: a line between old and new; none: no video.",
            autocompletion=one_of("side", "wipe", "none"),
        ),
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
    trust: TrustOption = None,
    dry_run: DryRunFlag = False,
    as_json: AsJson = False,
) -> None:
    """Show what changes when NEW takes the place of OLD.

    Both models run on SOURCE; their classes are matched by name, so NEW may have more, fewer or others. Every pixel
    that changes is of one kind: forgotten, learned, taken, appeared, swapped or lost. The page ranks the worst seconds.

    Example: `rcil-serve diff deployed/model.onnx candidate/model.onnx yard.mp4 -o changes`
    """
    from rcil_serve.cli.dry_run import diff_dry_run
    from rcil_serve.diff.run import DiffRequest, run_diff
    from rcil_serve.stream.shutdown import complain, sigterm_as_interrupt
    from rcil_serve.stream.sources import Selection
    from rcil_serve.stream.sources.live import LiveOptions

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
        trust=tuple(trust or ()),
    )
    if dry_run:
        print_dry_run(diff_dry_run(request), as_json=as_json)
        return
    with frame_bar() as show, sigterm_as_interrupt():
        result = run_diff(request, make_notifier(as_json=as_json), show)
    if as_json:
        print_json({"receipt": result.document, "warnings": result.warnings, **result.found.as_document()})
    else:
        typer.echo(result.headline)
        for path in (*result.outputs.values(), request.receipt):
            typer.echo(f"  {path}")
    complain(result.document, request.receipt, "compared")
