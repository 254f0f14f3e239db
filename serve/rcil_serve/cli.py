"""The command `rcil-serve`: running deployed models and showing what they see."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from rcil.console import make_app, print_json, progress_line, run
from rcil.data.errors import DataError

if TYPE_CHECKING:
    from rcil_serve.predictor import Layout
    from rcil_serve.video.run import Progress

app = make_app("rcil-serve", "Show and serve what a deployed model sees.")

ModelOption = Annotated[Path, typer.Option("--model", "-m", help="model.onnx or model.engine of rcil-export.")]
DeviceOption = Annotated[str, typer.Option(help="auto, cpu, cuda or tensorrt; engines run on the GPU.")]
ThreadsOption = Annotated[int | None, typer.Option(min=1, help="Threads on the CPU; all cores if not given.")]
SizeOption = Annotated[
    str | None, typer.Option(help="Height x width of the model's input; pictures keep their proportions.")
]
TileOption = Annotated[int | None, typer.Option(min=16, help="Cut large pictures into squares of this side.")]
OverlapOption = Annotated[int, typer.Option(min=0, help="Pixels that neighbouring squares share.")]
BatchOption = Annotated[int, typer.Option(min=1, help="Pictures, or squares, to run at once.")]
AlphaOption = Annotated[float, typer.Option(min=0, max=1, help="Weight of the class colours.")]
ClassesOption = Annotated[str, typer.Option(help="Paint these classes only, for example forklift,pallet.")]
LegendOption = Annotated[bool, typer.Option("--legend/--no-legend", help="Class names in the corner.")]
JsonOption = Annotated[bool, typer.Option("--json", help="Machine-readable output.")]


@app.command()
def video(
    source: Annotated[
        str, typer.Argument(help="Video, folder, 'pattern*.jpg', list.txt, camera number, rtsp:// or http:// address.")
    ],
    model: ModelOption,
    output: Annotated[Path | None, typer.Option("-o", "--output", help="Overlay video, .mp4.")] = None,
    masks: Annotated[Path | None, typer.Option(help="Class ids without loss: a .mkv, or a folder for PNGs.")] = None,
    jsonl: Annotated[Path | None, typer.Option(help="One line a frame: time, class shares, latency.")] = None,
    timeline: Annotated[Path | None, typer.Option(help="Plot of every class's area over time, .png.")] = None,
    receipt: Annotated[
        Path | None, typer.Option(help="Receipt of the run; beside the video if not given, .receipt.json.")
    ] = None,
    stride: Annotated[int, typer.Option(help="Every how many-th frame.")] = 1,
    start: Annotated[float, typer.Option(help="Seconds to skip.")] = 0.0,
    end: Annotated[float | None, typer.Option(help="Stop at this second.")] = None,
    max_frames: Annotated[int | None, typer.Option(help="Stop after so many frames.")] = None,
    fps: Annotated[float, typer.Option(min=0.01, help="Frames a second of image files.")] = 10.0,
    size: SizeOption = None,
    tile: TileOption = None,
    overlap: OverlapOption = 64,
    batch: BatchOption = 1,
    alpha: AlphaOption = 0.5,
    classes: ClassesOption = "",
    legend: LegendOption = False,
    smooth: Annotated[int, typer.Option(help="A pixel changes its class after so many equal frames.")] = 1,
    crf: Annotated[int, typer.Option(min=0, max=51, help="Quality of the video; less is better.")] = 21,
    timeout: Annotated[float, typer.Option(min=0.1, help="Seconds without data before connecting again.")] = 10.0,
    attempts: Annotated[int, typer.Option(min=1, help="Failed connections in a row before giving up.")] = 6,
    device: DeviceOption = "auto",
    threads: ThreadsOption = None,
    as_json: JsonOption = False,
) -> None:
    """Segment a video, camera or stream.

    Times, sound and rotation of the source are kept. Every frame is accounted for in the receipt. A run that is killed
    leaves a playable OUTPUT.part.mp4; Ctrl-C finishes what was read.

    Examples:
        rcil-serve video yard.mp4 --model deployed/model.onnx -o yard_seen.mp4 --timeline yard.png --jsonl yard.jsonl

        rcil-serve video rtsp://camera.local/1 -m deployed/model.onnx -o gate.mp4 --end 3600
    """
    from rcil_serve.video.outputs.sink import Targets
    from rcil_serve.video.run import VideoRequest, default_receipt, run_video
    from rcil_serve.video.sources import Selection
    from rcil_serve.video.sources.live import LiveOptions

    request = VideoRequest(
        source=source,
        model=model,
        targets=Targets(output, masks, jsonl, timeline),
        receipt=receipt or default_receipt(output or masks or jsonl or timeline),
        layout=_layout(size, tile, overlap, batch),
        selection=Selection(stride, start, end, max_frames),
        live=LiveOptions(timeout, attempts),
        rate=Fraction(fps).limit_denominator(1001),
        alpha=alpha,
        classes=_names(classes),
        legend=legend,
        smooth=smooth,
        crf=crf,
        device=device,
        threads=threads,
    )
    with _frame_bar() as show:
        result = run_video(request, (lambda text: None) if as_json else typer.echo, show)
    if as_json:
        print_json(result.document)
    else:
        _tell(result.document, request.receipt)
    problems = result.document["frames"]["problems"]
    if problems and not result.document["source"]["live"]:
        from rcil_serve.video.frames import SourceError

        raise SourceError(problems[0], f"What could be read is written; see {request.receipt}.")


@app.command()
def images(
    source: Annotated[str, typer.Argument(help="An image, a folder, a 'pattern*.jpg' or a list.txt.")],
    model: ModelOption,
    output: Annotated[Path, typer.Option("-o", "--output", help="Folder for overlays, masks and images.json.")],
    size: SizeOption = None,
    tile: TileOption = None,
    overlap: OverlapOption = 64,
    batch: BatchOption = 1,
    alpha: AlphaOption = 0.5,
    classes: ClassesOption = "",
    legend: LegendOption = False,
    device: DeviceOption = "auto",
    threads: ThreadsOption = None,
    as_json: JsonOption = False,
) -> None:
    """Segment images, each at its own size.

    Example: `rcil-serve images site/images --model deployed/model.onnx -o seen`
    """
    from rcil_serve.backends import open_backend
    from rcil_serve.images import segment_images
    from rcil_serve.painter import Painter
    from rcil_serve.predictor import Predictor
    from rcil_serve.video.sources.pictures import find_pictures

    paths = find_pictures(source)
    if paths is None:
        raise DataError(f"{source} is no image and no folder of images", "For videos use: rcil-serve video")
    backend = open_backend(model, device, threads)
    try:
        predictor = Predictor(backend, _layout(size, tile, overlap, batch))
        painter = Painter(predictor.classes, alpha, _names(classes), with_legend=legend)
        with progress_line("segmenting") as progress:
            result = segment_images(paths, backend, predictor, painter, output, progress)
    finally:
        backend.close()
    if as_json:
        print_json({"images": result.images, "problems": result.problems})
    else:
        typer.echo(f"{len(result.images)} images -> {output}")
    if result.problems:
        raise DataError(
            f"{len(result.problems)} of {len(paths)} images could not be read; the first: {result.problems[0]}",
            f"The others are in {output}.",
        )


def _layout(size: str | None, tile: int | None, overlap: int, batch: int) -> Layout:
    from rcil_export.shapes import parse_size
    from rcil_serve.predictor import Layout

    return Layout(None if size is None else parse_size(size), tile, overlap, batch)


def _names(text: str) -> tuple[str, ...]:
    return tuple(name.strip() for name in text.split(",") if name.strip())


@contextlib.contextmanager
def _frame_bar() -> Iterator[Any]:
    """A bar with frames a second and the time left, on a terminal."""
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
    with Bar(*columns, console=Console(stderr=True), transient=True, disable=not sys.stderr.isatty()) as bar:
        task = bar.add_task("", total=None, name="", rate="")

        def show(progress: Progress) -> None:
            written = progress.counts.written
            rate = f"{written / progress.seconds:.1f} fps" if progress.seconds > 0 else ""
            bar.update(task, completed=written, total=progress.info.frames, name=progress.info.name, rate=rate)

        yield show


def _tell(document: dict[str, Any], receipt: Path) -> None:
    frames, stages = document["frames"], document["stages"]
    lost = ", ".join(f"{frames[key]} {key}" for key in ("dropped", "corrupt", "reconnects") if frames[key])
    typer.echo(
        f"{document['status']}: {frames['written']} frames in {document['seconds']:.1f} s "
        f"({document['frames_a_second']:.1f} a second){', ' + lost if lost else ''}"
    )
    for name in ("decode", "infer", "paint", "encode"):
        stage = stages[name]
        if stage["count"]:
            typer.echo(
                f"  {name:8} p50 {stage['p50_ms']:8.2f}  p95 {stage['p95_ms']:8.2f}  p99 {stage['p99_ms']:8.2f} ms"
            )
    for output in document["outputs"].values():
        typer.echo(f"  {output['path']}")
    typer.echo(f"  {receipt}")


@app.command()
def overlay(
    image: Annotated[Path, typer.Argument(help="The image.")],
    mask: Annotated[Path, typer.Argument(help="Its mask: 8-bit PNG of class ids.")],
    model: Annotated[Path, typer.Option(help="A checkpoint, for the class names and colours.")],
    output: Annotated[Path, typer.Option("-o", "--output", help="The PNG to write.")],
    alpha: Annotated[float, typer.Option(min=0, max=1, help="Weight of the class colours.")] = 0.5,
    with_legend: Annotated[bool, typer.Option("--legend/--no-legend", help="Add class names below.")] = True,
) -> None:
    """Draw a mask over its image with the colours of the model's classes.

    Example: `rcil-serve overlay street.jpg street_mask.png --model deployed.safetensors -o street_overlay.png`
    """
    import numpy as np

    from rcil import drawing
    from rcil.checkpoint.header import read_header
    from rcil.data.masks import read_mask
    from rcil.images import read_rgb, write_image

    classes = read_header(model).metadata.classes
    pixels, ids = read_rgb(image), read_mask(mask)
    if pixels.shape[:2] != ids.shape:
        raise DataError(
            f"{mask} is {ids.shape[1]}x{ids.shape[0]} pixels, {image} is {pixels.shape[1]}x{pixels.shape[0]}",
            "Give the mask of this image at its size.",
        )
    drawn = drawing.overlay(pixels, ids, drawing.lut_of({c.id: c.colour for c in classes}), alpha)
    if with_legend:
        drawn = np.vstack([drawn, drawing.legend([(c.name, c.colour) for c in classes], drawn.shape[1])])
    write_image(output, drawn)
    typer.echo(str(output))


def main() -> None:
    """Entry point."""
    run(app)
