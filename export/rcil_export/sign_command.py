"""Signing what lies on the disk already."""

from __future__ import annotations

from pathlib import Path

from rcil.checkpoint.chain import delivered_metadata
from rcil.errors import ConfigError
from rcil.signing import Statement, read_statement, sign
from rcil_export.delivery import check_signing
from rcil_export.inspect_file import describe
from rcil_export.signing_options import Signing


def sign_target(target: Path, key: Path, password: str | None = None) -> Statement:
    """Sign a delivered folder, whose report names the checkpoint it came from, or a single file."""
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
    return read_statement(sign(target, key, about=about, password=password))
