"""How an export is signed, and whose signatures it accepts."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path


@dataclass(frozen=True)
class Signing:
    """The keys of one export."""

    key: Path | None = None
    """EC private key, PEM; None: the export is not signed."""
    password: str | None = field(default=None, repr=False)
    """Of the key."""
    trust: tuple[Path, ...] = ()
    """Public keys: statements of earlier steps, and what is published in Triton, must be signed with one of them."""
