"""Putting a model into the place that a service reads: one rename, and the way back if what follows fails."""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from rcil.core.errors import ConfigError, RcilError
from rcil.core.files import replacing, sha256_of
from rcil_serve.runtime.backends.open import signed_sha256

COMMAND_SECONDS = 60.0
MAX_LINE_BYTES = 4096
PLACEHOLDER = "{model}"
Undo = Callable[[], None]


class PromotionError(RcilError):
    """A promotion that could not be carried out; the service has what it had."""


@dataclass(frozen=True)
class Promotion:
    """What promoting a model means on this machine."""

    link: Path | None = None
    """What the service reads: a symlink to a model file or to its folder, or a model file that is overwritten."""
    command: str = ""
    """Run after that, without a shell; `{model}` stands for the model."""
    trust: tuple[Path, ...] = ()
    """Public keys, one of which must have signed the model at the moment it is promoted."""

    def check(self, model: Path) -> None:
        """Refuse at the start what could not be carried out later."""
        if self.command:
            self._words(model)
        if self.link is None:
            return
        if self.link.is_dir() and not self.link.is_symlink():
            raise ConfigError(
                f"{self.link} is a folder, which one rename cannot replace",
                f"Make it a symlink: mv {self.link} {self.link}.1 && ln -s {self.link.name}.1 {self.link}",
            )
        if self.link.is_dir() and not (self.link / model.name).exists():
            raise ConfigError(
                f"{self.link} leads to a folder without {model.name}, so the service reads another name",
                "Give the new model the name of the old one.",
            )
        if self.trust and self.link.is_file() and not self.link.is_symlink():
            raise ConfigError(
                f"{self.link} is a file, and a copy of the new model over it would lie there without its signature",
                "With --trust, let --promote-link be a symlink to the model or to its folder.",
            )
        if model.suffix != ".onnx" and not self.link.is_dir():
            raise ConfigError(
                f"{model} comes with a sidecar, and one rename cannot replace two files",
                "Let --promote-link be a symlink to the folder that holds both.",
            )

    def carry_out(self, model: Path, sha256: str) -> None:
        """Promote; on any failure the link is as it was.

        Args:
            model: Its file.
            sha256: Of the file that was tried out.
        """
        try:
            if sha256_of(model) != sha256:
                raise PromotionError(f"{model} is not the file that was tried out", "Start again with the new file.")
            if self.trust and signed_sha256(model, self.trust) != sha256:
                raise PromotionError(f"{model} is not the file that was signed", "Start again with the signed file.")
            undo = self._switch(model)
        except OSError as error:
            raise PromotionError(
                f"cannot promote {model}: {error.strerror or error}", "Check the folder and its permissions."
            ) from error
        try:
            self._run(model)
        except PromotionError as failed:
            try:
                undo()
            except OSError as error:
                raise PromotionError(
                    f"{failed.message}; and {self.link} could not be put back: {error.strerror}",
                    "Put it back by hand.",
                ) from failed
            raise

    def _switch(self, model: Path) -> Undo:
        if self.link is None:
            return lambda: None
        if self.link.is_dir():  # of a model that is a link itself the folder is where that link is
            return _relink(self.link, model.parent.resolve())
        if self.link.is_symlink() or not self.link.exists():
            return _relink(self.link, model.resolve())
        return _overwrite(self.link, model)

    def _words(self, model: Path) -> list[str]:
        try:
            return [word.replace(PLACEHOLDER, str(model)) for word in shlex.split(self.command)]
        except ValueError as error:
            raise ConfigError(f"--promote-command cannot be read: {error}", "Check its quotes.") from error

    def _run(self, model: Path) -> None:
        words = self._words(model)
        if not words:
            return
        with tempfile.TemporaryFile() as said:  # a pipe would be waited for as long as what it leaves running holds it
            try:
                done = subprocess.run(
                    words,
                    stdin=subprocess.DEVNULL,
                    stdout=said,
                    stderr=subprocess.STDOUT,
                    timeout=COMMAND_SECONDS,
                    check=False,
                )
            except subprocess.TimeoutExpired as error:
                raise PromotionError(
                    f"{words[0]} did not end within {COMMAND_SECONDS:g} s", "Run it by hand."
                ) from error
            except OSError as error:
                raise PromotionError(f"cannot run {words[0]}: {error.strerror}", "Check --promote-command.") from error
            if done.returncode:
                last = _last_line(said)
                raise PromotionError(
                    f"{words[0]} ended with code {done.returncode}{f': {last}' if last else ''}", "Run it by hand."
                )


def _last_line(file: IO[bytes]) -> str:
    """What a command said last."""
    file.seek(max(0, file.seek(0, os.SEEK_END) - MAX_LINE_BYTES))
    return (file.read(MAX_LINE_BYTES).decode("utf-8", "replace").strip().splitlines() or [""])[-1]


def _relink(link: Path, target: Path) -> Undo:
    before = link.readlink() if link.is_symlink() else None
    _point(link, target)
    return link.unlink if before is None else lambda: _point(link, before)


def _point(link: Path, target: Path) -> None:
    """Make `link` lead to `target`; whoever reads it meanwhile finds the old or the new one, never nothing."""
    link.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=f".{link.name}.", dir=link.parent) as folder:
        fresh = Path(folder) / link.name
        fresh.symlink_to(target)
        fresh.replace(link)


def _overwrite(path: Path, model: Path) -> Undo:
    """Replace a file by a copy of the model; the old one is kept beside it as `.previous`."""
    kept = path.with_name(f"{path.name}.previous")
    for source, target in ((path, kept), (model, path)):
        with replacing(target) as part:
            shutil.copyfile(source, part)

    def undo() -> None:
        kept.replace(path)

    return undo
