"""`rcil-serve video`; `rcil_serve.cli.app` registers it."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from rcil.cli.console import make_notifier, print_dry_run, print_json
from rcil.cli.heartbeat import heartbeat
from rcil.core.log import is_quiet
from rcil_serve.cli import options

if TYPE_CHECKING:
    from rcil_serve.stream.outputs.receipt import Progress


@options.with_option_groups
def video(
    source: options.SourceArgument,
    model: options.ModelOption,
    *,
    output: Annotated[Path | None, typer.Option("-o", "--output", help="Overlay video, .mp4.")] = None,
    masks: Annotated[Path | None, typer.Option(help="Lossless class ids: a .mkv, or a folder for PNGs.")] = None,
    jsonl: Annotated[Path | None, typer.Option(help="One line per frame: time, class shares, latency.")] = None,
    timeline: options.TimelineOption = None,
    receipt: options.ReceiptOption = None,
    stream: options.StreamArgs,
    alpha: options.AlphaOption = 0.5,
    classes: options.ClassesOption = "",
    legend: options.LegendOption = False,
    smooth: Annotated[int, typer.Option(help="Change a pixel's class after this many equal frames.")] = 1,
    encoder: options.EncoderArgs,
    segment: Annotated[
        str | None, typer.Option(metavar="TIME", help="Cut the outputs into files of this length, for example 10m.")
    ] = None,
    keep: Annotated[
        str | None, typer.Option(metavar="SIZE", help="Delete the oldest segments beyond this size, for example 50GB.")
    ] = None,
    view: options.ViewOption = None,
    view_token: options.ViewTokenOption = None,
    dry_run: options.DryRunFlag = False,
    as_json: options.AsJson = False,
) -> None:
    """Segment a video, camera or stream.

    Timestamps, sound and rotation of the source are kept. The receipt accounts for every frame. A run that is killed
    leaves a playable OUTPUT.part.mp4; Ctrl-C finishes the frames that were read.

    Examples:
        rcil-serve video yard.mp4 --model deployed/model.onnx -o yard_seen.mp4 --timeline yard.png --jsonl yard.jsonl

        rcil-serve video rtsp://camera.local/1 -m deployed/model.onnx -o gate.mp4 --end 3600

        rcil-serve video rtsp://camera.local/1 -m deployed/model.onnx -o gate.mp4 --segment 10m --keep 50GB --view 8080
    """
    from rcil_serve.cli.dry_run import video_dry_run
    from rcil_serve.live.server import parse_view
    from rcil_serve.stream.outputs.segments import parse_recording
    from rcil_serve.stream.outputs.sink import Targets
    from rcil_serve.stream.shutdown import raise_source_errors, sigterm_as_interrupt
    from rcil_serve.video.run import VideoRequest, default_receipt, run_video

    request = VideoRequest(
        source=source,
        model=model,
        targets=Targets(output, masks, jsonl, timeline),
        receipt=receipt or default_receipt(output or masks or jsonl or timeline),
        alpha=alpha,
        classes=options.names_of(classes),
        legend=legend,
        smooth=smooth,
        encoding=encoder.encoding,
        recording=parse_recording(segment, keep),
        view=None if view is None else parse_view(view, view_token),
        **stream.as_fields(),
    )
    if dry_run:
        print_dry_run(video_dry_run(request), as_json=as_json)
        return
    with frame_bar() as show, sigterm_as_interrupt():
        document = run_video(request, make_notifier(as_json=as_json), show)
    if as_json:
        print_json(document)
    else:
        _print_summary(document, request.receipt)
    raise_source_errors(document, request.receipt, "written")


@contextlib.contextmanager
def frame_bar() -> Iterator[Callable[[Progress], None]]:
    """Show a progress bar with fps and the remaining time on a terminal, and elsewhere a line every half minute."""
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeRemainingColumn
    from rich.progress import Progress as Bar

    columns = (
        TextColumn("{task.fields[name]}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("{task.fields[rate]}"),
        TimeRemainingColumn(),
    )
    terminal = sys.stderr.isatty()
    with (
        Bar(*columns, console=Console(stderr=True), transient=True, disable=is_quiet() or not terminal) as bar,
        heartbeat("opening the source", terminal=terminal) as beat,
    ):
        task = bar.add_task("", total=None, name="", rate="")

        def show(progress: Progress) -> None:
            written = progress.counts.written
            rate = f"{written / progress.seconds:.1f} fps" if progress.seconds > 0 else ""
            bar.update(task, completed=written, total=progress.info.frames, name=progress.info.name, rate=rate)
            beat.count(f"{progress.info.name}, {rate}" if rate else progress.info.name, written, progress.info.frames)

        yield show


def _print_summary(document: dict[str, Any], receipt: Path) -> None:
    frames, stages = document["frames"], document["stages"]
    told = ("dropped", "corrupt", "reconnects", "discontinuities")
    lost = ", ".join(f"{frames[key]} {key}" for key in told if frames[key])
    typer.echo(
        f"{document['status']}: {frames['written']} frames in {document['seconds']:.1f} s "
        f"({document['frames_a_second']:.1f} fps){', ' + lost if lost else ''}"
    )
    for notice in frames["notices"]:
        typer.echo(f"  {notice}")
    for name in ("decode", "infer", "paint", "encode"):
        stage = stages[name]
        if stage["count"]:
            typer.echo(
                f"  {name:8} p50 {stage['p50_ms']:8.2f}  p95 {stage['p95_ms']:8.2f}  p99 {stage['p99_ms']:8.2f} ms"
            )
    segments = document.get("segments")
    if segments is not None:
        typer.echo(f"  segments: {segments['closed']}, deleted: {segments['deleted']}")
    for path in segments["last"] if segments is not None else [one["path"] for one in document["outputs"].values()]:
        typer.echo(f"  {path}")
    typer.echo(f"  {receipt}")
