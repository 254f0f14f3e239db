"""The commands about delivered models: `verify`, `sign` and `verify-signature`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from rcil.cli.completion import CHECKPOINTS, files
from rcil.cli.console import make_notifier, print_json, stage_lines
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
        typer.Argument(
            metavar="CHECKPOINT", help="The checkpoint it was exported from.", autocompletion=files(*CHECKPOINTS)
        ),
    ],
    calibrate: Annotated[
        Path | None,
        typer.Option(help="Folder of the images that fp16, bf16 or int8 were measured on, to measure again."),
    ] = None,
    output: Annotated[Path | None, typer.Option("-o", "--output", help="Also write the report here as JSON.")] = None,
    as_json: o.AsJson = False,
) -> None:
    """Export the checkpoint again and compare: graph, weights, descriptions, engine. Exit code 13 if anything differs.

    The maker of the files need not be trusted: the export is repeated with the options that the model states, and the
    files are also compared with a plain network that was built without folding. The options are printed, because only
    you can judge whether they are what you ordered. Nothing is written without -o.

    Example: `rcil-export verify deployed step1.safetensors --calibrate my_site`
    """
    from rcil_export.verification.report import VerifyError, as_text
    from rcil_export.verification.run import verify as run_verify

    with stage_lines("reading", make_notifier(as_json=as_json)) as (begin, bar):
        report = run_verify(
            delivered, checkpoint, calibrate=calibrate, notify=begin, listen=lambda phase, done, total: bar(done, total)
        )
    if output is not None:
        write_json(output, report.as_document())
    if as_json:
        print_json(report.as_document())
    else:
        typer.echo(as_text(report))
    if not report.ok:
        raise VerifyError(
            f"{delivered} is not an export of {checkpoint}",
            "The differences are listed above. Do not use it; ask for another delivery.",
        )


def sign(
    target: Annotated[Path, typer.Argument(help="A delivered folder, a checkpoint, or a single ONNX file.")],
    key: Annotated[Path, typer.Option("--key", help="EC private key, PEM.")],
    password: o.SignPassword = None,
    as_json: o.AsJson = False,
) -> None:
    """Sign a delivered folder or a single file; the statement is model.sig in the folder, or NAME.sig beside the file.

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
    """Check that a model is unchanged since it was signed with one of these keys. Exit code 12 if not.

    Example: `rcil-export verify-signature deployed --trust key.pub`
    """
    from rcil.core.signing import verify as verify_statement

    statement = verify_statement(target, trust)
    if as_json:
        print_json({"statement": str(statement.path), "key": statement.fingerprint, "files": statement.digests})
    else:
        typer.echo(f"{target}: as it was signed; {len(statement.digests)} files, key {statement.fingerprint}")
