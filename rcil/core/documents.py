"""Texts in JSON and YAML, where every way that they can be wrong is a `ValueError`."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

from rcil.core.files import replacing

MOST_PARTS, DEEPEST = 100_000, 50
"""Of a YAML document, with everything that aliases repeat: a few lines of them stand for more than fits in memory."""


def write_json(path: Path, document: object) -> None:
    """Write a JSON file atomically."""
    with replacing(path) as part:
        part.write_text(json.dumps(document, indent=2) + "\n", encoding="utf-8")


def parse_json(text: str | bytes) -> Any:
    """What a JSON text holds."""
    try:
        document = json.loads(text)
    except RecursionError as error:
        raise ValueError("it is nested too deeply") from error
    _refuse_half_characters(text, document)
    return document


def parse_yaml(text: str) -> Any:
    """What a YAML text holds.

    PyYAML checks the grammar and trusts the rest: a date in month 13, or a tag that does not fit its value, ends in
    whatever Python raises there.
    """
    with _as_value_errors():
        document = yaml.safe_load(text)
    _refuse_endless(document)
    _refuse_half_characters(text, document)
    return document


def yaml_entries(text: str, key: str) -> list[tuple[str, str]] | None:
    """The list or mapping at a top-level key, as it is written: (key, value) pairs, the keys of a list being empty.

    `no` stays `no` here, and `0` stays `0`. None where there is no such key; a value of any other form is a ValueError.
    """
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
    try:
        yield
    except yaml.YAMLError as error:
        raise ValueError(str(error).splitlines()[0]) from error
    except RecursionError as error:
        raise ValueError("it is nested too deeply") from error
    except (ArithmeticError, AttributeError, LookupError, TypeError) as error:
        raise ValueError(f"a value does not fit its type ({error})") from error


def _refuse_half_characters(text: str | bytes, document: Any) -> None:
    """Half of a surrogate pair can be escaped, but not written to any file, and it ends OpenCV when drawn."""
    escape = b"\\ud" if isinstance(text, bytes) else "\\ud"
    if escape in text.lower():  # type: ignore[operator]
        try:
            json.dumps(document, ensure_ascii=False, default=str, skipkeys=True).encode()
        except UnicodeEncodeError as error:
            raise ValueError("a text holds half a character") from error


def _refuse_endless(document: Any) -> None:
    rest, parts = [(document, 0)], 0
    while rest:
        value, depth = rest.pop()
        parts += 1
        if depth > DEEPEST or parts > MOST_PARTS:
            raise ValueError("it is nested too deeply, or its aliases repeat too much")
        if isinstance(value, dict):
            rest += [(inner, depth + 1) for pair in value.items() for inner in pair]
        elif isinstance(value, list | tuple | set):
            rest += [(inner, depth + 1) for inner in value]
