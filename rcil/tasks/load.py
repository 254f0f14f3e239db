"""Reading of task files: presets as a base, overrides, and errors that name the line of the value."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ValidationError

from rcil.core.documents import parse_yaml, yaml_lines
from rcil.core.errors import ConfigError, did_you_mean
from rcil.presets import preset_names, preset_text
from rcil.tasks.task import NetworkSection, Task

SECTIONS = "data, protocol, network, method, training"
PATHS = ("data.root", "network.pretrained", "network.weights")
"""Keys whose values are paths."""
Origins = dict[tuple[str | int, ...], str]
"""Where the value of a key was given, for messages: `task.yaml, line 7` or `--set training.lr=50`."""


def load_task(path: Path, overrides: list[str] | None = None) -> Task:
    """Read a task file or a preset and apply `a.b=c` overrides; unknown keys get a suggestion.

    Keys that a file leaves out are those of the preset that it names as its `base`, or else have their defaults.

    Args:
        path: A YAML file, or the name of a preset if there is no such file.
        overrides: Dotted keys with YAML values, for example `training.batch=8`.
    """
    preset = not path.is_file() and str(path) in preset_names()
    try:
        text = preset_text(str(path)) if preset else path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        hint = "Give a YAML file (the README shows one) or a preset."
        if path.parent == Path():
            hint += f" {did_you_mean(path.name, preset_names())}"
        raise ConfigError(f"cannot read the task {path}", hint) from error
    document = _on_base(parse_document(text, path, SECTIONS), path)
    origins = origins_in(text, path, overrides)
    for override in overrides or []:
        apply_override(document, override)
        key = override.partition("=")[0].strip()
        _from_here(document, key)
        if key == "training.lr" and isinstance(document.get("method"), dict):
            document["method"].pop("lr", None)  # a learning rate on the command line is meant for every method
    try:
        task = Task.model_validate(document)
    except ValidationError as error:
        raise explained(error, path, origins=origins) from error
    folder = Path() if preset else path.parent.resolve()  # a run may be resumed from another folder
    own = {**task.method.others.get(task.method.name, {}), **task.method.options}
    return task.model_copy(
        update={
            "data": task.data.model_copy(update={"root": folder / task.data.root}),
            "network": _anchored(task.network, folder),
            "method": task.method.model_copy(update={"options": own}),
        }
    )


def _on_base(document: dict[str, Any], path: Path) -> dict[str, Any]:
    """The document on top of the preset that it names as its base, if any."""
    name = document.pop("base", None)
    if name is None:
        return document
    if not isinstance(name, str):
        raise ConfigError(f"{path}: base is not the name of a preset", "`rcil presets` lists them.")
    base = parse_document(preset_text(name), path, SECTIONS)
    for key in PATHS:
        _from_here(base, key)
    return _merged(base, document)


def _merged(base: dict[str, Any], changes: dict[str, Any]) -> dict[str, Any]:
    """`base` with changes, section by section."""
    inner = {
        k: _merged(base[k], v) for k, v in changes.items() if isinstance(v, dict) and isinstance(base.get(k), dict)
    }
    return {**base, **changes, **inner}


def parse_document(text: str, path: Path, sections: str) -> dict[str, Any]:
    """Parse a task file; `path` and `sections` are used in error messages."""
    try:
        document = parse_yaml(text)
    except ValueError as error:
        raise ConfigError(f"{path} is not YAML: {error}", "Check indentation and colons.") from error
    if not isinstance(document, dict):
        raise ConfigError(f"{path} is not a task", f"A task has the sections {sections}.")
    return document


def apply_override(document: dict[str, Any], override: str) -> None:
    """Set the value of one dotted key."""
    key, equals, text = override.partition("=")
    if not equals or not key.strip():
        raise ConfigError(f"'{override}' is not an override", "Write key=value, for example training.batch=8.")
    *sections, last = key.strip().split(".")
    target = document
    for section in sections:
        inner = target.setdefault(section, {})
        if not isinstance(inner, dict):
            raise ConfigError(f"'{section}' in '{override}' is not a section", "Check the key.")
        target = inner
    try:
        target[last] = parse_yaml(text)
    except ValueError as error:
        raise ConfigError(f"the value in '{override}' is not YAML", "Quote it.") from error


def _from_here(document: dict[str, Any], key: str) -> None:
    """Resolve a path given on the command line against the current folder, not the folder of the task file."""
    if key in PATHS:
        section, name = key.split(".")
        value = document.get(section, {}).get(name)
        if isinstance(value, str) and value != "imagenet":
            document[section][name] = str(Path(value).absolute())


def explained(
    error: ValidationError, path: Path, task: type[BaseModel] = Task, origins: Origins | None = None
) -> ConfigError:
    """Convert a validation error of a task, the first about a value that the user gave, into a message for users.

    Args:
        error: The error.
        path: The task file.
        task: The model that was validated.
        origins: See `origins_in`.
    """
    found = error.errors()
    first = next((one for one in found if one["loc"] in (origins or {})), found[0])  # not a value that follows from it
    loc, text = first["loc"], first["msg"].removeprefix("Value error, ")
    where, origin = ".".join(map(str, loc)), origin_of(loc, text, path, origins or {})
    if first["type"] == "extra_forbidden":
        section: Any = task
        for part in loc[:-1]:
            section = section.model_fields[part].annotation
        return ConfigError(f"{origin}: unknown key '{where}'", did_you_mean(str(loc[-1]), section.model_fields))
    if first["type"] == "less_than_equal":
        text = f"{first['input']} is too large; the maximum is {first['ctx']['le']:g}"
        text = "nan is not a number" if str(first["input"]) == "nan" else text
    if first["type"] in ("tuple_type", "list_type"):
        text = f"{first['input']!r} is not a list"
    return ConfigError(f"{origin}: {where or 'task'}: {text}", "Correct the value.")


def _anchored(section: NetworkSection, folder: Path) -> NetworkSection:
    given = {"pretrained": section.pretrained, "weights": section.weights}
    return section.model_copy(update={key: folder / path for key, path in given.items() if isinstance(path, Path)})


def origins_in(text: str, path: Path, overrides: list[str] | None) -> Origins:
    """The origins of all keys of a valid task file and of the overrides."""
    origins: Origins = {key: f"{path}, line {line}" for key, line in yaml_lines(text).items()}
    for override in overrides or ():
        key = tuple(override.partition("=")[0].strip().split("."))
        origins = {other: origin for other, origin in origins.items() if other[: len(key)] != key}
        origins[key] = f"--set {override}"
    return origins


def origin_of(loc: tuple[str | int, ...], text: str, path: Path, origins: Origins) -> str:
    """The origin of the key, or of the closest section around it.

    Errors about several keys belong to their section; their text starts with the key to change.
    """
    word = tuple(text.partition(" ")[0].split("."))
    for key in ((*loc, *word), *(loc[:end] for end in range(len(loc), 0, -1))):
        if key in origins:
            return origins[key]
    return str(path)


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
