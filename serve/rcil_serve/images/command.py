"""`rcil-serve images`; `rcil_serve.cli.app` registers it."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path
from typing import Annotated

import typer

from rcil.cli.console import make_notifier, print_json, progress_line
from rcil.core.errors import ConfigError
from rcil.core.files import working_in
from rcil.core.reading import DataError
from rcil_serve.cli import options


@options.with_option_groups
def images(
    source: Annotated[str, typer.Argument(help="An image, a folder, a 'pattern*.jpg' or a list.txt.")],
    model: options.ModelOption,
    output: Annotated[Path, typer.Option("-o", "--output", help="Folder for overlays, masks and images.json.")],
    *,
    run: options.ModelArgs,
    alpha: options.AlphaOption = 0.5,
    classes: options.ClassesOption = "",
    legend: options.LegendOption = False,
    as_json: options.AsJson = False,
) -> None:
    """Segment images, each at its own size.

    Example: `rcil-serve images site/images --model deployed/model.onnx -o seen`
    """
    from rcil_serve.images.run import segment_images
    from rcil_serve.runtime.backends import open_backend
    from rcil_serve.runtime.painter import Painter
    from rcil_serve.runtime.predictor import Predictor
    from rcil_serve.stream.output_checks import check_free_folders, check_no_overwrite, is_site
    from rcil_serve.stream.sources.pictures import find_pictures

    paths = find_pictures(source)
    if paths is None:
        raise DataError(f"{source} is neither an image nor a folder of images", "For videos, use: rcil-serve video")
    if is_site(output):
        raise ConfigError(f"{output} is a site folder; its masks would be overwritten", "Choose another folder for -o.")
    check_free_folders(paths, [output / "overlays", output / "masks"])
    check_no_overwrite(source, [model], {"list of results": output / "images.json"})
    with closing(open_backend(model, run.device, run.threads, run.trust or ())) as backend:
        predictor = Predictor(backend, run.layout)
        for line in predictor.notices:
            make_notifier(as_json=as_json)(line)
        painter = Painter(predictor.classes, alpha, options.names_of(classes), with_legend=legend)
        with working_in(output), progress_line("segmenting") as progress:
            result = segment_images(paths, backend, predictor, painter, output, progress)
    if as_json:
        print_json({"images": result.images, "problems": result.problems})
    else:
        typer.echo(f"{len(result.images)} images -> {output}")
    if result.problems:
        raise DataError(
            f"{len(result.problems)} of {len(paths)} images could not be read; the first: {result.problems[0]}",
            f"The others are in {output}.",
        )
