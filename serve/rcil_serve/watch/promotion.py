"""Promotes a model: one atomic rename to the path that a service reads, undone if the command after it fails."""

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
from rcil_serve.runtime.backends import signed_sha256

COMMAND_SECONDS = 60.0
MAX_LINE_BYTES = 4096
PLACEHOLDER = "{model}"
Undo = Callable[[], None]


class PromotionError(RcilError):
    """A promotion failed; the service still has the old model."""


@dataclass(frozen=True)
class Promotion:
    """How a model is promoted."""

    link: Path | None = None
    """Path that the service reads: a symlink to a model file or its folder, or a model file to overwrite."""
    command: str = ""
    """Command to run afterwards, without a shell; `{model}` is replaced by the path of the model."""
    trust: tuple[Path, ...] = ()
    """Public keys; the model must be signed with one of them when it is promoted."""

    def check(self, model: Path) -> None:
        """Raise if the promotion could not be applied later."""
        if self.command:
            self._words(model)
        if self.link is None:
            return
        if self.link.is_dir() and not self.link.is_symlink():
            raise ConfigError(
                f"{self.link} is a folder, which cannot be replaced atomically",
                f"Make it a symlink: mv {self.link} {self.link}.1 && ln -s {self.link.name}.1 {self.link}",
            )
        if self.link.is_dir() and not (self.link / model.name).exists():
            raise ConfigError(
                f"{self.link} points to a folder without {model.name}, so the service reads another file",
                "Name the new model like the old one.",
            )
        if self.trust and self.link.is_file() and not self.link.is_symlink():
            raise ConfigError(
                f"{self.link} is a file, and copying the new model over it would lose its signature",
                "With --trust, make --promote-link a symlink to the model or its folder.",
            )
        if model.suffix != ".onnx" and not self.link.is_dir():
            raise ConfigError(
                f"{model} has a sidecar, and two files cannot be replaced atomically",
                "Make --promote-link a symlink to the folder that holds both.",
            )

    def apply(self, model: Path, sha256: str) -> None:
        """Promote a model; after any failure the link is unchanged.

        Args:
            model: File of the model.
            sha256: SHA-256 of the file that was tested.
        """
        try:
            if sha256_of(model) != sha256:
                raise PromotionError(f"{model} is not the file that was tested", "Restart with the new file.")
            if self.trust and signed_sha256(model, self.trust) != sha256:
                raise PromotionError(f"{model} is not the file that was signed", "Restart with the signed file.")
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
                    f"{failed.message}; and {self.link} could not be restored: {error.strerror}", "Restore it by hand."
                ) from failed
            raise

    def _switch(self, model: Path) -> Undo:
        if self.link is None:
            return lambda: None
        if self.link.is_dir():  # the folder of the path as given, even if the model itself is a symlink
            return _relink(self.link, model.parent.resolve())
        if self.link.is_symlink() or not self.link.exists():
            return _relink(self.link, model.resolve())
        return _overwrite(self.link, model)

    def _words(self, model: Path) -> list[str]:
        try:
            return [word.replace(PLACEHOLDER, str(model)) for word in shlex.split(self.command)]
        except ValueError as error:
            raise ConfigError(f"--promote-command cannot be parsed: {error}", "Check its quotes.") from error

    def _run(self, model: Path) -> None:
        words = self._words(model)
        if not words:
            return
        with tempfile.TemporaryFile() as said:  # a pipe would block while a background process holds it
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
                    f"{words[0]} did not finish within {COMMAND_SECONDS:g} s", "Run it by hand."
                ) from error
            except OSError as error:
                raise PromotionError(f"cannot run {words[0]}: {error.strerror}", "Check --promote-command.") from error
            if done.returncode:
                last = _last_line(said)
                raise PromotionError(
                    f"{words[0]} exited with code {done.returncode}{f': {last}' if last else ''}", "Run it by hand."
                )


def _last_line(file: IO[bytes]) -> str:
    """Last line of a command's output."""
    file.seek(max(0, file.seek(0, os.SEEK_END) - MAX_LINE_BYTES))
    return (file.read(MAX_LINE_BYTES).decode("utf-8", "replace").strip().splitlines() or [""])[-1]


def _relink(link: Path, target: Path) -> Undo:
    before = link.readlink() if link.is_symlink() else None
    _replace_symlink(link, target)
    return link.unlink if before is None else lambda: _replace_symlink(link, before)


def _replace_symlink(link: Path, target: Path) -> None:
    """Point `link` to `target` atomically: readers find either the old or the new target."""
    link.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=f".{link.name}.", dir=link.parent) as folder:
        fresh = Path(folder) / link.name
        fresh.symlink_to(target)
        fresh.replace(link)


def _overwrite(path: Path, model: Path) -> Undo:
    """Replace a file with a copy of the model; the old file is kept as `.previous`."""
    kept = path.with_name(f"{path.name}.previous")
    for source, target in ((path, kept), (model, path)):
        with replacing(target) as part:
            shutil.copyfile(source, part)

    def undo() -> None:
        kept.replace(path)

    return undo
