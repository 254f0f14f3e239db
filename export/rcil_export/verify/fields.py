"""Comparing descriptions field by field: JSON documents, and the texts inside an ONNX file or a sidecar."""

from __future__ import annotations

import difflib
import json
from collections.abc import Iterator, Mapping
from typing import Any

from rcil_export.verify.report import Difference

MAX_TEXT = 200
ABSENT = "absent"


def compare_documents(delivered: object, expected: object, path: str = "") -> Iterator[Difference]:
    """Every field that differs between two JSON values, named like `classes[2].colour[0]`."""
    if isinstance(delivered, dict) and isinstance(expected, dict):
        for key in dict.fromkeys([*expected, *delivered]):
            where = f"{path}.{key}" if path else str(key)
            if key not in delivered or key not in expected:
                found, wanted = (_shown(side[key]) if key in side else ABSENT for side in (delivered, expected))
                yield Difference(where, found, wanted)
            else:
                yield from compare_documents(delivered[key], expected[key], where)
    elif isinstance(delivered, list) and isinstance(expected, list):
        for index, (found, wanted) in enumerate(zip(delivered, expected, strict=False)):
            yield from compare_documents(found, wanted, f"{path}[{index}]")
        if len(delivered) != len(expected):
            yield Difference(path, f"{len(delivered)} entries", f"{len(expected)} entries")
    elif type(delivered) is not type(expected) or delivered != expected:
        yield Difference(path, _shown(delivered), _shown(expected))


def compare_texts(delivered: Mapping[str, str], expected: Mapping[str, str]) -> Iterator[Difference]:
    """Entries of metadata; those that hold JSON on both sides are compared field by field."""
    for key in sorted({*delivered, *expected}):
        found, wanted = delivered.get(key), expected.get(key)
        if found == wanted:
            continue
        if found is None or wanted is None:
            yield Difference(key, *(ABSENT if side is None else _shown(side) for side in (found, wanted)))
            continue
        both = _parsed(found), _parsed(wanted)
        if all(isinstance(side, dict) for side in both):
            listed = list(compare_documents(*both, path=key))
            yield from listed or [Difference(key, "the same fields, written differently", "the text of a fresh export")]
        else:
            yield Difference(key, _shown(found), _shown(wanted))


def compare_lines(name: str, delivered: str, expected: str) -> Iterator[Difference]:
    """Lines of a text that differ, by their number in the delivered one."""
    found, wanted = delivered.split("\n"), expected.split("\n")
    for kind, low, high, low_b, high_b in difflib.SequenceMatcher(None, found, wanted, autojunk=False).get_opcodes():
        if kind != "equal":
            sides = (found[low:high], wanted[low_b:high_b])
            yield Difference(f"{name}, line {low + 1}", *(_shown(" / ".join(side)) or ABSENT for side in sides))


def _parsed(text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None


def _shown(value: object) -> str:
    text = value if isinstance(value, str) else json.dumps(value, default=str)
    return text if len(text) <= MAX_TEXT else f"{text[:MAX_TEXT]}…"
