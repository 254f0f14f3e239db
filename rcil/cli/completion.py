"""Shell completion. Method names are duplicated here so that completion does not import torch."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from rcil.presets import preset_names

Completer = Callable[[str], list[str]]

CHECKPOINTS = (".safetensors",)
DEPLOYED = (".onnx", ".engine", ".plan")
METHODS = (
    "dft", "fine-tuning", "ilt", "joint", "lwf", "lwf-mc", "mib", "plop", "rcil", "rcil-official", "rcil-plus", "sdr",
    "strict",
)  # fmt: skip


RULES = ("mixed", "uncertain", "diverse", "disagree")
"""Rules of `rcil pick`."""


def one_of(*names: str) -> Completer:
    """Complete one of the names."""

    def complete(incomplete: str) -> list[str]:
        return [name for name in names if name.startswith(incomplete)]

    return complete


def some_of(*names: str) -> Completer:
    """Complete a comma-separated list of names, each used once."""

    def complete(incomplete: str) -> list[str]:
        given, comma, last = incomplete.rpartition(",")
        return [f"{given}{comma}{name}" for name in names if name.startswith(last) and name not in given.split(",")]

    return complete


def files(*suffixes: str) -> Completer:
    """Complete files with one of the suffixes, and folders; an empty result leaves completion to the shell."""

    def complete(incomplete: str) -> list[str]:
        found = _beside(incomplete, suffixes)
        while len(found) == 1 and found[0].endswith("/"):  # the shell would end the word after a single match
            inside = _beside(found[0], suffixes)
            if len(inside) != 1:
                return found + inside
            found = inside
        return found

    return complete


def tasks(incomplete: str) -> list[str]:
    """Complete presets and task files."""
    return [*one_of(*preset_names())(incomplete), *files(".yaml", ".yml")(incomplete)]


def presets(incomplete: str) -> list[str]:
    """Complete presets."""
    return one_of(*preset_names())(incomplete)


def _beside(incomplete: str, suffixes: tuple[str, ...]) -> list[str]:
    given, slash, start = incomplete.rpartition("/")
    try:
        entries = sorted(Path(f"{given}{slash}" or ".").expanduser().iterdir())
    except OSError:
        return []
    wanted = [e for e in entries if e.name.startswith(start) and e.name.startswith(".") == start.startswith(".")]
    folders = [f"{given}{slash}{entry.name}/" for entry in wanted if entry.is_dir()]
    return [f"{given}{slash}{e.name}" for e in wanted if e.suffix.lower() in suffixes and e.is_file()] + folders
