"""The command `rcil-export`: from a checkpoint to what is deployed."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from rcil.console import make_app, print_json, run, write_json

app = make_app("rcil-export", "Turn a checkpoint into its deployed form and check that nothing changed.")


@app.command()
def fold(
    model: Annotated[Path, typer.Argument(help="A checkpoint (.safetensors) of any step.")],
    output: Annotated[Path, typer.Option("-o", "--output", help="The folded checkpoint to write.")],
    force: Annotated[
        bool, typer.Option("--force", help="Fold a checkpoint that is marked as rejected; the mark stays.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print the report as JSON.")] = False,
) -> None:
    """Fold every RC block into one conv and every norm into its conv; write only if the outputs agree.

    A report is written beside the output as NAME.fold.json. A checkpoint that `rcil add-class` marked as rejected is
    refused with exit code 8.

    Example: `rcil-export fold step1.safetensors -o deployed.safetensors`
    """
    from rcil_export.fold_checkpoint import fold_checkpoint

    document = fold_checkpoint(model, output, force=force).as_document()
    write_json(output.with_suffix(".fold.json"), document)
    if as_json:
        print_json(document)
        return
    typer.echo(f"{output}: {document['rc_blocks']} RC blocks folded, {document['layers_folded']} layers in all")
    typer.echo(f"  largest error        {document['relative_error']:.1e} of the logit range")
    typer.echo(f"  same class           {document['argmax_agreement']:.4%} of pixels")
    typer.echo(f"  parameters           {document['parameters']:,} = plain network's {document['plain_parameters']:,}")
    typer.echo(f"  multiply-accumulates {document['macs']:,} = plain network's {document['plain_macs']:,}")


def main() -> None:
    """Entry point."""
    run(app)
