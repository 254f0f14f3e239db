"""Parsing of JSON, YAML and lists, where every kind of invalid text raises a `ValueError`.

PyYAML is imported when it is needed, because commands that only write JSON would start more slowly.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from rcil.core.files import write_file

MAX_PARTS, MAX_DEPTH = 100_000, 50
"""Limits of a YAML document with expanded aliases: a few lines of aliases can expand to more than fits in memory."""


def write_json(path: Path, document: object) -> None:
    """Write a JSON file atomically."""
    write_file(path, json.dumps(document, indent=2) + "\n")


def comma_separated(text: str) -> tuple[str, ...]:
    """The names in `a, b`; an empty text has none."""
    return tuple(name.strip() for name in text.split(",") if name.strip())


def parse_json(text: str | bytes) -> Any:
    """Parse a JSON text."""
    try:
        document = json.loads(text)
    except RecursionError as error:
        raise ValueError("it is nested too deeply") from error
    _check_surrogates(text, document)
    return document


def parse_yaml(text: str) -> Any:
    """Parse a YAML text.

    PyYAML checks the grammar only: a date in month 13, or a tag that does not fit its value, raises whatever Python
    raises there. Those errors become a `ValueError` too.
    """
    import yaml

    with _as_value_errors():
        document = yaml.safe_load(text)
    _check_size(document)
    _check_surrogates(text, document)
    return document


def yaml_lines(text: str) -> dict[tuple[str | int, ...], int]:
    """Line of every key and list entry of a valid YAML text: `("training", "lr", 0)` -> 7, counted from 1."""
    import yaml

    with _as_value_errors():
        root = yaml.compose(text, Loader=yaml.BaseLoader)
    lines: dict[tuple[str | int, ...], int] = {}
    rest: list[tuple[tuple[str | int, ...], Any]] = [((), root)]
    while rest and len(lines) < MAX_PARTS:
        path, node = rest.pop()
        if isinstance(node, yaml.MappingNode):
            entries = [(key.value, key, value) for key, value in node.value if isinstance(key, yaml.ScalarNode)]
        elif isinstance(node, yaml.SequenceNode):
            entries = [(index, value, value) for index, value in enumerate(node.value)]
        else:
            continue
        for name, at, value in entries:
            lines[*path, name] = at.start_mark.line + 1
            rest.append(((*path, name), value))
    return lines


def yaml_entries(text: str, key: str) -> list[tuple[str, str]] | None:
    """The list or mapping at a top-level key as unparsed text: (key, value) pairs, where the keys of a list are empty.

    `no` stays `no`, and `0` stays `0`. Returns None if the key is missing; any other kind of value is a ValueError.
    """
    import yaml

    with _as_value_errors():
        document = yaml.compose(text, Loader=yaml.BaseLoader)
    pairs = document.value if isinstance(document, yaml.MappingNode) else []
    found = next((value for name, value in pairs if name.value == key), None)
    if found is None:
        return None
    entries = [("", node) for node in found.value] if isinstance(found, yaml.SequenceNode) else found.value
    if not isinstance(entries, list):
        raise ValueError(f"'{key}' is neither a list nor a mapping")
    texts = [(name if isinstance(name, str) else name.value, node.value) for name, node in entries]
    odd = next((value for pair in texts for value in pair if not isinstance(value, str)), None)
    if odd is not None:
        raise ValueError(f"'{key}' holds more than names")
    return texts


@contextlib.contextmanager
def _as_value_errors() -> Iterator[None]:
    import yaml

    try:
        yield
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        where = "" if mark is None else f"line {mark.line + 1}: "
        raise ValueError(f"{where}{getattr(error, 'problem', None) or str(error).splitlines()[0]}") from error
    except RecursionError as error:
        raise ValueError("it is nested too deeply") from error
    except (ArithmeticError, AttributeError, LookupError, TypeError) as error:
        raise ValueError(f"a value does not fit its type ({error})") from error


def _check_surrogates(text: str | bytes, document: Any) -> None:
    """Raise for a lone surrogate: it can be escaped, but not written to a file, and drawing it crashes OpenCV."""
    escape = b"\\ud" if isinstance(text, bytes) else "\\ud"
    if escape in text.lower():  # type: ignore[operator]
        try:
            json.dumps(document, ensure_ascii=False, default=str, skipkeys=True).encode()
        except UnicodeEncodeError as error:
            raise ValueError("a text contains a lone surrogate") from error


def _check_size(document: Any) -> None:
    rest, parts = [(document, 0)], 0
    while rest:
        value, depth = rest.pop()
        parts += 1
        if depth > MAX_DEPTH or parts > MAX_PARTS:
            raise ValueError("it is nested too deeply, or its aliases repeat too much")
        if isinstance(value, dict):
            rest += [(inner, depth + 1) for pair in value.items() for inner in pair]
        elif isinstance(value, list | tuple | set):
            rest += [(inner, depth + 1) for inner in value]
