"""What `--dry-run` says: what would be read, written and needed, after the same checks as the real run's."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path

import typer

from rcil.cli.console import print_json
from rcil.core.errors import RcilError


@dataclass(frozen=True)
class DryRun:
    """A run that does not take place. Each part says, by file or by subject, what there is to know."""

    reads: Mapping[str, str]
    writes: Mapping[str, str]
    needs: Mapping[str, str] = field(default_factory=dict)

    def show(self, *, as_json: bool) -> None:
        """The result of the command."""
        if as_json:
            print_json({"dry_run": True, **asdict(self)})
            return
        for title, part in (("would read", self.reads), ("would write", self.writes), ("needs about", self.needs)):
            for name, text in part.items():
                typer.echo(f"{title:12} {name}: {text}" if text else f"{title:12} {name}")


def require_place(path: Path) -> None:
    """Raise if nothing could be written at `path`, without trying."""
    there = path.absolute()
    while not there.exists():
        there = there.parent
    if there != path.absolute() and not there.is_dir():
        raise RcilError(f"cannot write {path}: {there} is not a folder", "Choose another place.")
    if not os.access(there, os.W_OK):
        raise RcilError(f"cannot write {path}: no permission in {there}", "Check the folder and its permissions.")
