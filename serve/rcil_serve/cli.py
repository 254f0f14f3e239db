"""The command `rcil-serve`: running deployed models and showing what they see."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from rcil.completion import CHECKPOINTS, files
from rcil.console import make_app, print_json, run
from rcil.data.errors import DataError
from rcil.options import AsJson
from rcil_serve.diff.command import diff
from rcil_serve.http.command import http
from rcil_serve.images_command import images
from rcil_serve.options import AlphaOption, TrustOption
from rcil_serve.video.command import video
from rcil_serve.watch.command import watch

app = make_app("rcil-serve", "Show and serve what a deployed model sees.")
for command in (video, images, diff, watch, http):
    app.command()(command)


@app.command()
def overlay(
    image: Annotated[Path, typer.Argument(help="The image.")],
    mask: Annotated[Path, typer.Argument(help="Its mask: 8-bit PNG of class ids.")],
    model: Annotated[
        Path,
        typer.Option(
            "-m",
            "--model",
            help="A checkpoint, for the class names and colours.",
            autocompletion=files(*CHECKPOINTS),
        ),
    ],
    output: Annotated[Path, typer.Option("-o", "--output", help="The PNG to write.")],
    alpha: AlphaOption = 0.5,
    with_legend: Annotated[bool, typer.Option("--legend/--no-legend", help="Add class names below.")] = True,
    trust: TrustOption = None,
    as_json: AsJson = False,
) -> None:
    """Draw a mask over its image with the colours of the model's classes.

    Example: `rcil-serve overlay street.jpg street_mask.png --model deployed.safetensors -o street_overlay.png`
    """
    import numpy as np

    from rcil import drawing
    from rcil.checkpoint.header import read_header
    from rcil.data.masks import read_mask
    from rcil.images import read_rgb, write_image
    from rcil.signing import verify

    if trust:
        verify(model, trust)
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
    if as_json:
        print_json({"overlay": str(output)})
    else:
        typer.echo(str(output))


def main() -> None:
    """Entry point."""
    run(app)
