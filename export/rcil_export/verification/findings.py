"""What is collected while a delivery is looked through."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rcil.core.errors import CheckpointError
from rcil.core.log import Notify as Say
from rcil_export.verification.report import Claim, Difference, claim_of


@dataclass
class Findings:
    """Claims about the files below `root`, each file read once."""

    root: Path
    """The delivered folder, or the folder of the delivered file."""
    say: Say = lambda text: None
    claims: list[Claim] = field(default_factory=list)
    files: dict[str, str] = field(default_factory=dict)
    interfaces: dict[str, dict[str, Any]] = field(default_factory=dict)

    def name(self, path: Path) -> str:
        """A file as the report names it."""
        return str(path.relative_to(self.root))

    def read(self, path: Path) -> bytes:
        """The bytes that all claims about the file are made about."""
        try:
            data = path.read_bytes()
        except OSError as error:
            raise CheckpointError(f"cannot read {path}: {error.strerror}", "Check the path.") from error
        self.files[self.name(path)] = hashlib.sha256(data).hexdigest()
        return data

    def add(self, path: Path, key: str, title: str, proved: str, differences: Iterable[Difference]) -> bool:
        """A claim that is proved unless something differs; returns whether it is."""
        self.claims.append(claim_of(self.name(path), key, title, proved, differences))
        return self.claims[-1].status == "proved"

    def not_proved(self, path: Path, key: str, title: str, why: str) -> None:
        """A claim that nothing here can prove or refute."""
        self.claims.append(Claim(self.name(path), key, title, "not proved", why))

    def wrong(self, path: Path, key: str, title: str, why: str) -> None:
        """A claim that is refuted without a field to name."""
        self.claims.append(Claim(self.name(path), key, title, "wrong", why, (Difference(self.name(path), why, title),)))
