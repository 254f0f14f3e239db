"""A result must not replace what it is made from. Neither torch nor TensorRT here."""

from __future__ import annotations

from pathlib import Path

from rcil.core.errors import ConfigError


def require_other_file(target: Path, source: Path, what: str) -> None:
    """Raise if `target` is the file `source`, under this or another name.

    Args:
        target: What is to be written.
        source: What it is made from.
        what: The source, for the message: `the checkpoint it is folded from`.
    """
    if target.resolve() == source.resolve():
        raise ConfigError(f"{target} would replace {what}", "Choose another name.")
