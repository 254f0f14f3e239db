"""The command line `rcil-serve`: run deployed models on images, video and HTTP requests."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from rcil.cli.completion import CHECKPOINTS, files
from rcil.cli.console import make_app, print_json, run
from rcil.cli.options import AsJson
from rcil.hardware.cpu import keep_freed_memory
from rcil_serve.cli.options import AlphaOption, TrustOption
from rcil_serve.diff.command import diff
from rcil_serve.http.command import http
from rcil_serve.images.command import images
from rcil_serve.video.command import video
from rcil_serve.watch.command import watch

app = make_app("rcil-serve", "Run a deployed model on images, video and HTTP requests.")
for command in (video, images, diff, watch, http):
    app.command()(command)


@app.command()
def overlay(
    image: Annotated[Path, typer.Argument(help="The image.")],
    mask: Annotated[Path, typer.Argument(help="Its mask: an 8-bit PNG of class ids.")],
    model: Annotated[
        Path,
        typer.Option(
            "-m",
            "--model",
            help="Checkpoint or model.onnx with the class names and colours.",
            autocompletion=files(*CHECKPOINTS, ".onnx"),
        ),
    ],
    output: Annotated[Path, typer.Option("-o", "--output", help="The PNG to write.")],
    alpha: AlphaOption = 0.5,
    with_legend: Annotated[bool, typer.Option("--legend/--no-legend", help="Add a legend below.")] = True,
    trust: TrustOption = None,
    as_json: AsJson = False,
) -> None:
    """Draw a mask over its image in the colours of the model's classes.

    Masks of our commands record their class names, and classes are matched by name. A class that the model lacks is
    an error.

    Example: `rcil-serve overlay street.jpg street_mask.png --model deployed.safetensors -o street_overlay.png`
    """
    from rcil.core.images import write_image
    from rcil.core.signing import verify
    from rcil_serve.images.overlay import draw_overlay, read_class_table

    if trust:
        verify(model, trust)
    drawn = draw_overlay(image, mask, read_class_table(model), alpha, with_legend=with_legend)
    write_image(output, drawn)
    if as_json:
        print_json({"overlay": str(output)})
    else:
        typer.echo(str(output))


def main() -> None:
    """Entry point."""
    keep_freed_memory()
    run(app)
