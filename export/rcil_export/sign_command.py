"""`rcil-export sign` and `rcil-export verify-signature`; `rcil_export.cli` registers them."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from rcil.console import print_json
from rcil.errors import ConfigError
from rcil_export import options as o

if TYPE_CHECKING:
    from rcil.signing import Statement


def sign(
    target: Annotated[Path, typer.Argument(help="A delivered folder, a checkpoint, or a single ONNX file.")],
    key: Annotated[Path, typer.Option("--key", help="EC private key, PEM.")],
    password: o.SignPassword = None,
    as_json: o.AsJson = False,
) -> None:
    """Sign a delivered folder as it is, or a single file; the statement is model.sig in it, or NAME.sig beside it.

    Example: `rcil-export sign step0.safetensors --key key.pem`
    """
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
    from rcil.signing import verify

    statement = verify(target, trust)
    if as_json:
        print_json({"statement": str(statement.path), "key": statement.fingerprint, "files": statement.digests})
    else:
        typer.echo(f"{target}: as it was signed; {len(statement.digests)} files, key {statement.fingerprint}")


def sign_target(target: Path, key: Path, password: str | None = None) -> Statement:
    """Sign a delivered folder, whose report names the checkpoint it came from, or a single file."""
    from rcil.checkpoint.chain import delivered_metadata
    from rcil.signing import read_statement
    from rcil.signing import sign as write_statement
    from rcil_export.delivery import check_signing
    from rcil_export.inspect_file import describe
    from rcil_export.signing_options import Signing

    if not target.exists():
        raise ConfigError(f"{target} does not exist", "Name a delivered folder, a checkpoint or an ONNX file.")
    about = ""
    if target.is_dir():
        check_signing(Signing(key, password), target, publishes=False)
        metadata = delivered_metadata(target)
        parent = metadata.lineage[-1].parent_sha256 if metadata.lineage else None
        about = f"step {metadata.step} of checkpoint sha256:{parent}" if parent else f"step {metadata.step}"
    elif target.suffix not in (".onnx", ".safetensors"):
        raise ConfigError(
            f"{target} cannot be signed by itself", "Sign the folder that it was delivered in: an engine has a sidecar."
        )
    else:
        describe(target)  # nobody vouches for a file that cannot be read
    return read_statement(write_statement(target, key, about=about, password=password))
