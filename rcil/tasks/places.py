"""Where the values of a task were given, for error messages."""

from __future__ import annotations

from pathlib import Path

from rcil.core.documents import yaml_lines

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


def place_of(loc: tuple[str | int, ...], text: str, path: Path, places: Places) -> str:
    """The place of the key, or of the closest section around it.

    Errors about several keys belong to their section; their text starts with the key to change.
    """
    word = tuple(text.partition(" ")[0].split("."))
    for key in ((*loc, *word), *(loc[:end] for end in range(len(loc), 0, -1))):
        if key in places:
            return places[key]
    return str(path)
