"""`rcil-serve diff`; `rcil_serve.cli.app` registers it."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from rcil.cli.completion import one_of
from rcil.cli.console import make_notifier, print_dry_run, print_json
from rcil_serve.cli import options
from rcil_serve.video.command import frame_bar


@options.with_option_groups
def diff(
    old: Annotated[
        Path,
        typer.Argument(help="The deployed model: .onnx or .engine from rcil-export.", autocompletion=options.MODELS),
    ],
    new: Annotated[Path, typer.Argument(help="The model that would replace it.", autocompletion=options.MODELS)],
    source: options.SourceArgument,
    *,
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
    stream: options.StreamArgs,
    alpha: options.AlphaOption = 0.5,
    encoder: options.EncoderArgs,
    dry_run: options.DryRunFlag = False,
    as_json: options.AsJson = False,
) -> None:
    """Show what changes when NEW replaces OLD.

    Both models run on SOURCE. Their classes are matched by name, so NEW may have more, fewer or different ones. Every
    pixel that changes is forgotten, learned, taken, appeared, swapped or lost. The page ranks the worst seconds.

    Example: `rcil-serve diff deployed/model.onnx candidate/model.onnx yard.mp4 -o changes`
    """
    from rcil_serve.cli.dry_run import diff_dry_run
    from rcil_serve.diff.run import DiffRequest, run_diff
    from rcil_serve.stream.shutdown import raise_source_errors, sigterm_as_interrupt

    request = DiffRequest(
        old=old,
        new=new,
        source=source,
        out=output,
        view=view,
        alpha=alpha,
        encoding=encoder.encoding,
        **stream.as_fields(),
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
        for path in (*request.outputs().values(), request.receipt):
            typer.echo(f"  {path}")
    raise_source_errors(result.document, request.receipt, "compared")
