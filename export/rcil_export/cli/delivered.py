"""The commands about delivered models: `verify`, `sign` and `verify-signature`."""

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
    from rcil_export.verification.report import VerifyError, as_text
    from rcil_export.verification.run import verify as run_verify

    with progress_line("engine") as bar:
        report = run_verify(
            delivered,
            checkpoint,
            calibrate=calibrate,
            notify=make_notifier(as_json=as_json),
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


def sign(
    target: Annotated[Path, typer.Argument(help="A delivered folder, a checkpoint, or a single ONNX file.")],
    key: Annotated[Path, typer.Option("--key", help="EC private key, PEM.")],
    password: o.SignPassword = None,
    as_json: o.AsJson = False,
) -> None:
    """Sign a delivered folder as it is, or a single file; the statement is model.sig in it, or NAME.sig beside it.

    Example: `rcil-export sign step0.safetensors --key key.pem`
    """
    from rcil_export.delivery.folder import sign_target

    statement = sign_target(target, key, password)
    if as_json:
        print_json({"statement": str(statement.path), "key": statement.fingerprint, "files": statement.digests})
    else:
        typer.echo(f"{statement.path}: {len(statement.digests)} files, key {statement.fingerprint}")


def verify_signature(
    target: Annotated[Path, typer.Argument(help="A delivered folder, or a model file.")],
    trust: Annotated[list[Path], typer.Option("--trust", help="Public key (PEM) of a signer. Can be repeated.")],
    as_json: o.AsJson = False,
) -> None:
    """Check that a model is as it was signed, with one of the keys that are named. Exit code 12 if not.

    Example: `rcil-export verify-signature deployed --trust key.pub`
    """
    from rcil.core.signing import verify as verify_statement

    statement = verify_statement(target, trust)
    if as_json:
        print_json({"statement": str(statement.path), "key": statement.fingerprint, "files": statement.digests})
    else:
        typer.echo(f"{target}: as it was signed; {len(statement.digests)} files, key {statement.fingerprint}")
