"""Where the values of a task were given, for error messages."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator
from pathlib import Path

from rcil.core.documents import yaml_lines
from rcil.core.errors import ConfigError

Places = dict[tuple[str | int, ...], str]
"""Where the value of a key was given, for messages: `task.yaml, line 7` or `--set training.lr=50`."""


def places_in(text: str, path: Path, overrides: list[str] | None) -> Places:
    """The places of all keys of a valid task file and of the overrides."""
    places: Places = {key: f"{path}, line {line}" for key, line in yaml_lines(text).items()}
    for override in overrides or ():
        key = tuple(override.partition("=")[0].strip().split("."))
        places = {other: place for other, place in places.items() if other[: len(key)] != key}
        places[key] = f"--set {override}"
    return places


@contextlib.contextmanager
def naming_lines(path: Path) -> Iterator[None]:
    """Start the message of a ConfigError that quotes a word of the task file, such as a class name, with its line."""
    try:
        yield
    except ConfigError as error:
        line = _line_of(path, error.message)
        if line is None:
            raise
        raise type(error)(f"{path}, line {line}: {error.message}", error.hint) from error


def _line_of(path: Path, message: str) -> int | None:
    """The first line of a file that holds a quoted word of a message as a whole word; None if there is none."""
    if not path.is_file() or message.startswith(str(path)):
        return None
    lines = path.read_text(encoding="utf-8").splitlines()
    for word in re.findall("'([^']+)'", message):
        whole = re.compile(rf"(?<![\w-]){re.escape(word)}(?![\w-])")
        for number, line in enumerate(lines, 1):
            if whole.search(line.partition("#")[0]):
                return number
    return None


def place_of(loc: tuple[str | int, ...], text: str, path: Path, places: Places) -> str:
    """The place of the key, or of the closest section around it.

    Errors about several keys belong to their section; their text starts with the key to change.
    """
    word = tuple(text.partition(" ")[0].split("."))
    for key in ((*loc, *word), *(loc[:end] for end in range(len(loc), 0, -1))):
        if key in places:
            return places[key]
    return str(path)
