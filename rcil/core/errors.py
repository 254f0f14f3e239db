"""The exception tree: one root class with a message, a hint and an exit code."""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches
from typing import ClassVar


class RcilError(Exception):
    """An error that the user can act on.

    Args:
        message: What is wrong, with the offending value or file.
        hint: What to do about it.
    """

    exit_code: ClassVar[int] = 1

    def __init__(self, message: str, hint: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint

    def __str__(self) -> str:
        return f"{self.message}\n{self.hint}" if self.hint else self.message


class ConfigError(RcilError):
    """An impossible request: an unknown name, or options that exclude each other."""

    exit_code = 2


class CheckpointError(RcilError):
    """A model file that cannot be read, or does not fit what was asked of it."""

    exit_code = 3


class MissingDependencyError(RcilError):
    """An optional package is needed and not installed."""

    exit_code = 4


class RunError(RcilError):
    """A model that loads but does not run, or whose output has the wrong form."""

    exit_code = 5


class TrainingError(RcilError):
    """A training run that cannot continue."""

    exit_code = 7


class GateError(RcilError):
    """A model that a check after training found unfit to be deployed."""

    exit_code = 8


class TrustError(RcilError):
    """A model whose signature is missing, was made with another key, or does not match its files."""

    exit_code = 12


def first_line(error: BaseException) -> str:
    """The first line of another library's error message, or the type of an error without a message."""
    return (str(error).strip().splitlines() or [type(error).__name__])[0][:200]


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """A hint that names the closest known word, or lists all of them if none is close."""
    names = sorted(known)
    close = get_close_matches(word, names, n=1, cutoff=0.6)
    return f"Did you mean '{close[0]}'?" if close else f"Known: {', '.join(names)}."
