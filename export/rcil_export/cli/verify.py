"""`rcil-export verify`; `rcil_export.cli.app` registers it."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from rcil.cli.completion import CHECKPOINTS, files
from rcil.cli.console import make_notifier, print_json, progress_line
from rcil.core.documents import write_json
from rcil_export.cli import options as o


def verify(
    delivered: Annotated[
        Path,
        typer.Argument(
            metavar="DELIVERED",
            help="A folder that rcil-export wrote, a single ONNX file, or a Triton model repository.",
            autocompletion=files(".onnx"),
        ),
    ],
    checkpoint: Annotated[
        Path,
        typer.Argument(metavar="CHECKPOINT", help="What it was exported from.", autocompletion=files(*CHECKPOINTS)),
    ],
    calibrate: Annotated[
        Path | None,
        typer.Option(help="The images that fp16, bf16 or int8 were measured on: measure again."),
    ] = None,
    output: Annotated[Path | None, typer.Option("-o", "--output", help="Also write the report here as JSON.")] = None,
    as_json: o.AsJson = False,
) -> None:
    """Export the checkpoint again and compare: graph, weights, descriptions, engine. Exit code 13 if anything differs.

    Needs no trust in who made the files: the export is repeated here with the options that the model states, and the
    result is also compared with a plain network that was never folded. Prints those options: whether they are what you
    ordered is yours to judge. Nothing is written without -o.

    Example: `rcil-export verify deployed step1.safetensors --calibrate my_site`
    """
    from rcil_export.verify.report import VerifyError, as_text
    from rcil_export.verify.run import verify as run_verify

    with progress_line("engine") as bar:
        report = run_verify(
            delivered,
            checkpoint,
            calibrate=calibrate,
            say=make_notifier(as_json=as_json),
            listen=lambda phase, done, total: bar(done, total),
        )
    if output is not None:
        write_json(output, report.as_document())
    if as_json:
        print_json(report.as_document())
    else:
        typer.echo(as_text(report))
    if not report.ok:
        raise VerifyError(
            f"{delivered} is not what {checkpoint} gives",
            "What differs is named above. Do not use it; ask for another.",
        )
