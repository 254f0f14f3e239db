"""Random damage to bytes, and to documents as trees, so that a mistake is deep inside an otherwise valid file."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable, Sequence
from random import Random
from typing import Any

Tree = Any
"""A JSON-like document: None, numbers, strings, lists, dictionaries and `Raw`."""
NUMBERS = (0, 1, 2, 3, 7, 8, 127, 128, 255, 256, 32767, 32768, 65535, 65536, 2**31 - 1, 2**31, 2**32 - 1, 2**63, -1, -2)
TEXTS = (
    "", " ", "a", "\n", "\0", "nan", "-1", "1e9", "é", "\u202e", "\U0001f600", "..", "../x", "/", "C:\\x", "%s", "{}",
)  # fmt: skip


class Raw(str):
    """Text that is written into a document verbatim, even if it is not valid JSON."""


class Pairs(list[tuple[str, Tree]]):
    """A JSON object that may contain a key twice."""


def damaged(random: Random, data: bytes, others: Sequence[bytes] = ()) -> bytes:
    """Damage bytes in one to four ways; parts of `others` may be spliced in."""
    for _ in range(1 + min(3, int(random.expovariate(1)))):
        data = random.choice(_DAMAGES)(random, data, others)
    return data


def odd_value(random: Random) -> Tree:
    """Return a value that few readers expect."""
    match random.randrange(12):
        case 0:
            return random.choice((None, True, False, [], {}, [[]], {"": None}, [None], [[], {}]))
        case 1:
            return random.choice(NUMBERS)
        case 2:
            return random.choice((-(2**63), 2**64, 10**30, -(10**30), 1e308, -1e308, 5e-324, 0.5, -0.0, 1.5, 1e15))
        case 3:
            return Raw(random.choice(("NaN", "Infinity", "-Infinity", "1e999", "-1e999", "9" * 400, "9" * 5000)))
        case 4:
            return random.choice(TEXTS)
        case 5:
            return "x" * random.choice((100, 1000, 10_000, 50_000))
        case 6:
            return Raw(random.choice(('"\\ud800"', '"\\udfff\\ud800"', '"\\u0000"', '"\ud83d"', '"', "'", "")))
        case 7:
            return nested(random)
        case 8:
            return [odd_value(random) for _ in range(random.randrange(5))]
        case 9:
            return {random.choice(TEXTS): odd_value(random) for _ in range(random.randrange(4))}
        case 10:
            return random.choices((0, 1, -1, 0.5, 2**40), k=random.choice((1, 3, 50, 1000)))
        case _:
            return random.randint(-(2**34), 2**34)


def nested(random: Random) -> Raw:
    """Nested brackets, often deeper than a parser's recursion limit."""
    deep = random.choice((5, 50, 200, 900, 2000, 20_000))
    opening, closing = random.choice((("[", "]"), ('{"a":', "}")))
    return Raw(opening * deep + random.choice(("1", "", "null")) + closing * random.choice((deep, deep, deep - 1)))


def grown_wrong(random: Random, tree: Tree, odd: Callable[[Random], Tree] = odd_value) -> Tree:
    """Return a copy of a document with one to three mistakes.

    Args:
        random: Random number generator.
        tree: The document.
        odd: Generates the values that replace others.
    """
    holder = [copy.deepcopy(tree)]
    for _ in range(1 + min(2, int(random.expovariate(1)))):
        locations = list(_locations(holder))
        container, key = random.choice(locations)
        match random.randrange(8):
            case 0 if len(container) and container is not holder:
                del container[key]
            case 1 if isinstance(container, list) and container is not holder:
                container[key : key + 1] = [container[key]] * random.choice((0, 2, 3, 40))
            case 2 if isinstance(container, dict):
                container[random.choice((*TEXTS, *container, f"{key}x"))] = odd(random)
            case 3:
                other, name = random.choice(locations)
                if other is not holder and container is not holder:
                    container[key] = copy.deepcopy(other[name])
            case 4 if isinstance(container[key], dict):
                pairs = list(container[key].items())
                container[key] = Pairs([*pairs, *((name, odd(random)) for name, _ in pairs[:2])])
            case 5 if isinstance(container[key], str) and not isinstance(container[key], Raw):
                text = damaged(random, container[key].encode("utf-8", "surrogatepass"))
                container[key] = text.decode("utf-8", "replace")
            case _:
                container[key] = odd(random)
    return holder[0]


def as_json(tree: Tree) -> bytes:
    """Serialise a document, including its mistakes."""
    return _text(tree).encode("utf-8", "surrogatepass")


def damaged_json(random: Random, tree: Tree, odd: Callable[[Random], Tree] = odd_value) -> bytes:
    """Serialise a document with mistakes in its content, or sometimes in its text."""
    if random.random() < 0.15:
        return damaged(random, as_json(tree))
    return as_json(grown_wrong(random, tree, odd))


def _text(tree: Tree) -> str:
    match tree:
        case Raw():
            return tree
        case Pairs():
            return "{" + ", ".join(f"{json.dumps(key)}: {_text(value)}" for key, value in tree) + "}"
        case dict():
            return "{" + ", ".join(f"{json.dumps(key)}: {_text(value)}" for key, value in tree.items()) + "}"
        case list() | tuple():
            return "[" + ", ".join(map(_text, tree)) + "]"
        case _:
            return json.dumps(tree)


def _locations(container: Any) -> list[tuple[Any, Any]]:
    """Every (container, key) of a document, outermost first."""
    found: list[tuple[Any, Any]] = []
    keys = range(len(container)) if isinstance(container, list) else list(container)
    for key in keys:
        found.append((container, key))
        if isinstance(container[key], list | dict) and not isinstance(container[key], Pairs):
            found += _locations(container[key])
    return found


def _flip(random: Random, data: bytes, others: Sequence[bytes]) -> bytes:
    changed = bytearray(data)
    for _ in range(random.choice((1, 1, 2, 8))):
        if changed:
            changed[random.randrange(len(changed))] ^= 1 << random.randrange(8)
    return bytes(changed)


def _set(random: Random, data: bytes, others: Sequence[bytes]) -> bytes:
    changed = bytearray(data)
    if changed:
        changed[random.randrange(len(changed))] = random.choice((0, 1, 0x7F, 0x80, 0xFF, random.randrange(256)))
    return bytes(changed)


def _cut_off(random: Random, data: bytes, others: Sequence[bytes]) -> bytes:
    return data[: random.randrange(len(data) + 1)]


def _take_out(random: Random, data: bytes, others: Sequence[bytes]) -> bytes:
    start = random.randrange(len(data) + 1)
    return data[:start] + data[start + random.choice((1, 2, 4, 16, 200)) :]


def _put_in(random: Random, data: bytes, others: Sequence[bytes]) -> bytes:
    start = random.randrange(len(data) + 1)
    new = random.choice(
        (b"\0", b"\xff", b"\xff\xfe", b"\xc3\x28", b"\n", b"[" * 3000, random.randbytes(random.randrange(1, 20)))
    )
    return data[:start] + new + data[start:]


def _repeat(random: Random, data: bytes, others: Sequence[bytes]) -> bytes:
    start = random.randrange(len(data) + 1)
    part = data[start : start + random.choice((1, 4, 16, 64, 300))]
    return data[:start] + part * random.choice((2, 3, 10)) + data[start + len(part) :]


def _number(random: Random, data: bytes, others: Sequence[bytes]) -> bytes:
    """Overwrite some bytes with a number of random width and byte order."""
    width, order = random.choice((1, 2, 4, 8)), random.choice(("little", "big"))
    value = random.choice(NUMBERS) % (1 << 8 * width)
    start = random.randrange(len(data) + 1)
    new = value.to_bytes(width, "little" if order == "little" else "big")
    return data[:start] + new + data[start + width :]


def _splice(random: Random, data: bytes, others: Sequence[bytes]) -> bytes:
    other = random.choice(others) if others else data
    return data[: random.randrange(len(data) + 1)] + other[random.randrange(len(other) + 1) :]


def _clear(random: Random, data: bytes, others: Sequence[bytes]) -> bytes:
    start = random.randrange(len(data) + 1)
    length = min(len(data) - start, random.choice((4, 16, 100, 1000)))
    return data[:start] + random.choice((b"\0", b"\xff", b" ")) * length + data[start + length :]


_DAMAGES = (_flip, _flip, _set, _cut_off, _take_out, _put_in, _repeat, _number, _number, _splice, _clear)
