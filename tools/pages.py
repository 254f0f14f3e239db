"""Generated parts of pages: the lines between the marks `<!-- NAME -->` and `<!-- end of NAME -->`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence


def part(text: str, name: str) -> list[str]:
    """The lines of a part."""
    return _split(text, name)[1].splitlines()


def filled(text: str, found: Mapping[str, Sequence[str]]) -> str:
    """The page with new lines in some of its parts."""
    for name, lines in found.items():
        before, _, after = _split(text, name)
        text = before + "".join(f"{line}\n" for line in lines) + after
    return text


def _split(text: str, name: str) -> tuple[str, str, str]:
    """The page up to the first mark of a part, the part, and the page from its second mark on."""
    begin, end = f"<!-- {name} -->\n", f"<!-- end of {name} -->\n"
    before, _, rest = text.partition(begin)
    inside, mark, after = rest.partition(end)
    if not mark:
        raise SystemExit(f"the page has no part '{name}'")
    return before + begin, inside, end + after
