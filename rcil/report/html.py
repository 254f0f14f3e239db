"""Self-contained HTML pages from blocks of text, tables and pictures. Nothing here imports torch."""

from __future__ import annotations

import base64
import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import Literal

from rcil.core.files import replacing
from rcil.core.images import JPEG

POLICY = "default-src 'none'; img-src data:; style-src 'unsafe-inline'"
"""Content security policy: the browser fetches nothing, so that a page can be opened and mailed anywhere."""

STYLE = """
:root { color-scheme: light dark; --text: #1b1f24; --dim: #59636e; --line: #d1d9e0; --page: #fff; --stripe: #f6f8fa }
@media (prefers-color-scheme: dark) {
  :root { --text: #e6edf3; --dim: #9198a1; --line: #3d444d; --page: #0d1117; --stripe: #151b23 }
}
body { margin: 0 auto; padding: 1.5rem 1rem 4rem; max-width: 70rem; background: var(--page); color: var(--text);
  font: 1rem/1.5 system-ui, sans-serif }
h1 { margin: 0; font-size: 1.6rem; line-height: 1.25; overflow-wrap: anywhere }
h2 { margin: 2.5rem 0 .5rem; font-size: 1.15rem }
p { max-width: 45rem; white-space: pre-line; overflow-wrap: anywhere }
.subtitle, .note { margin: .4rem 0; color: var(--dim) }
.note { font-size: .9rem }
.scroll { overflow-x: auto }
table { border-collapse: collapse; font-variant-numeric: tabular-nums }
th, td { padding: .3rem .55rem; border-bottom: 1px solid var(--line); text-align: right; white-space: nowrap }
thead th { border-bottom: 2px solid var(--line); white-space: normal }
tbody tr:nth-child(even) > * { background: var(--stripe) }
tr > :first-child { position: sticky; left: 0; padding-left: .3rem; background: var(--page); text-align: left;
  font-weight: normal; white-space: normal; overflow-wrap: anywhere; min-width: 7rem }
thead tr > * { font-weight: 600 }
.prose th, .prose td { text-align: left; white-space: normal; vertical-align: top }
img { display: block; max-width: 100%; height: auto; border-radius: 6px; background: #fff }
h3 { margin: 1.6rem 0 .4rem; font-size: 1rem; overflow-wrap: anywhere }
h3 span { font-weight: normal; color: var(--dim) }
pre { max-width: 100%; margin: .3rem 0 1rem; padding: .7rem .9rem; border: 1px solid var(--line); border-radius: 6px;
  background: var(--stripe); font-size: .85rem; white-space: pre-wrap; overflow-wrap: anywhere }
ol { padding-left: 1.4rem; max-width: 60rem }
:root { --good: #1a7f37; --unsure: #9a6700; --bad: #cf222e }
@media (prefers-color-scheme: dark) { :root { --good: #3fb950; --unsure: #d29922; --bad: #f85149 } }
.good { --tone: var(--good) } .unsure { --tone: var(--unsure) } .bad { --tone: var(--bad) } .dim { --tone: var(--dim) }
.mark { color: var(--tone); font-weight: 600 }
.mark.dim { font-weight: normal }
.banner { margin: 1.2rem 0; padding: .8rem 1.1rem; border: 1px solid var(--tone); border-left-width: .5rem;
  border-radius: 6px; background: color-mix(in srgb, var(--tone) 9%, var(--page)) }
.banner strong { display: block; color: var(--tone); font-size: 1.3rem; letter-spacing: .02em }
.banner p { margin: .2rem 0 0; max-width: none }
"""

Tone = Literal["good", "unsure", "bad", "dim"]


@dataclass(frozen=True)
class Mark:
    """A coloured cell."""

    text: str
    tone: Tone


Cell = str | float | Mark | None
"""Floats are shown with one decimal, integers with a space between thousands, None and NaN as a dash."""


@dataclass(frozen=True)
class BannerBlock:
    """A coloured box with a word in large letters and a sentence."""

    word: str
    text: str
    tone: Tone


@dataclass(frozen=True)
class TextBlock:
    """Plain text; blank lines separate paragraphs, other line breaks are kept."""

    text: str


@dataclass(frozen=True)
class TableBlock:
    """A table; the first column names the rows and is left-aligned, the others are right-aligned."""

    title: str
    columns: Sequence[str]
    rows: Sequence[Sequence[Cell]]
    """Rows with one cell per column."""
    note: str = ""
    prose: bool = False
    """Whether cells contain text, which is left-aligned and wrapped."""


@dataclass(frozen=True)
class ImageBlock:
    """An embedded picture."""

    title: str
    png: bytes
    """A PNG or JPEG file."""
    alt: str
    """Alternative text of the picture."""
    note: str = ""


@dataclass(frozen=True)
class GalleryBlock:
    """Pictures under a common title."""

    title: str
    pictures: Sequence[ImageBlock]
    """Their titles are subtitles here, and their notes stand beside them."""
    note: str = ""


@dataclass(frozen=True)
class StepsBlock:
    """A numbered list of what to do, each with a command or an empty string."""

    title: str
    steps: Sequence[tuple[str, str]]


Block = TextBlock | TableBlock | ImageBlock | BannerBlock | GalleryBlock | StepsBlock


def write_page(path: Path, title: str, subtitle: str, blocks: Sequence[Block]) -> None:
    """Write the page atomically; it refers to no other file or host.

    Args:
        path: The .html file.
        title: Its heading.
        subtitle: A line below the heading; may be empty.
        blocks: The content, from top to bottom.
    """
    with replacing(path) as part:
        # Paths may contain bytes that are not UTF-8; a replacement character is better than no report.
        part.write_text(as_html(title, subtitle, blocks), encoding="utf-8", errors="replace")


def as_html(title: str, subtitle: str, blocks: Sequence[Block]) -> str:
    """The page as text."""
    return document(title, [*_optional(subtitle, "subtitle"), *(line for block in blocks for line in _block(block))])


def document(title: str, body: Sequence[str], style: str = "") -> str:
    """A complete page in the common style.

    Args:
        title: Its heading.
        body: Lines of HTML below the heading.
        style: Additional CSS.
    """
    lines = [
        "<!DOCTYPE html>",
        '<html lang="en">',
        "<head>",
        '<meta charset="utf-8">',
        f'<meta http-equiv="Content-Security-Policy" content="{escape(POLICY)}">',
        '<meta name="viewport" content="width=device-width, initial-scale=1">',
        f"<title>{escape(title)}</title>",
        f"<style>{STYLE}{style}</style>",
        "</head>",
        "<body>",
        f"<h1>{escape(title)}</h1>",
        *body,
        "</body>",
        "</html>",
    ]
    return "\n".join(lines) + "\n"


def _block(block: Block) -> list[str]:
    match block:
        case TextBlock():
            return [f"<p>{escape(part)}</p>" for part in re.split(r"\n\s*\n", block.text.strip()) if part]
        case TableBlock():
            return _table(block)
        case ImageBlock():
            return ["<section>", f"<h2>{escape(block.title)}</h2>", _image(block), *_optional(block.note), "</section>"]
        case BannerBlock():
            word, text = f"<strong>{escape(block.word)}</strong>", f"<p>{escape(block.text)}</p>"
            return [f'<div class="banner {block.tone}" role="status">', word, text, "</div>"]
        case GalleryBlock():
            pictures = [line for picture in block.pictures for line in _captioned(picture)]
            return ["<section>", f"<h2>{escape(block.title)}</h2>", *_optional(block.note), *pictures, "</section>"]
        case StepsBlock():
            items = [line for text, command in block.steps for line in _step(text, command)]
            return ["<section>", f"<h2>{escape(block.title)}</h2>", "<ol>", *items, "</ol>", "</section>"]


def _image(block: ImageBlock) -> str:
    kind = "jpeg" if block.png.startswith(JPEG) else "png"
    source = f"data:image/{kind};base64," + base64.b64encode(block.png).decode("ascii")
    return f'<img src="{source}" alt="{escape(block.alt)}">'


def _captioned(block: ImageBlock) -> list[str]:
    note = f" <span>{escape(block.note)}</span>" if block.note else ""
    return [f"<h3>{escape(block.title)}{note}</h3>", _image(block)]


def _step(text: str, command: str) -> list[str]:
    return [f"<li>{escape(text)}", *([f"<pre>{escape(command)}</pre>"] if command else []), "</li>"]


def _table(table: TableBlock) -> list[str]:
    head = "".join(f'<th scope="col">{escape(column)}</th>' for column in table.columns)
    return [
        "<section>",
        f"<h2>{escape(table.title)}</h2>",
        f'<div class="scroll" tabindex="0" role="region" aria-label="{escape(table.title)}">',
        '<table class="prose">' if table.prose else "<table>",
        f"<thead><tr>{head}</tr></thead>",
        "<tbody>",
        *(_row(row, len(table.columns)) for row in table.rows),
        "</tbody>",
        "</table>",
        "</div>",
        *_optional(table.note),
        "</section>",
    ]


def _row(cells: Sequence[Cell], width: int) -> str:
    assert len(cells) == width, f"{len(cells)} cells in a table of {width} columns"
    first, *rest = map(_shown, cells)
    return f'<tr><th scope="row">{first}</th>' + "".join(f"<td>{cell}</td>" for cell in rest) + "</tr>"


def _shown(cell: Cell) -> str:
    """The cell as HTML."""
    if isinstance(cell, Mark):
        return f'<span class="mark {cell.tone}">{escape(cell.text)}</span>'
    if isinstance(cell, str):
        return escape(cell)
    if cell is None or math.isnan(cell):
        return "–"
    return f"{cell:,}".replace(",", "\u202f") if isinstance(cell, int) else f"{cell:.1f}"


def _optional(text: str, kind: str = "note") -> list[str]:
    return [f'<p class="{kind}">{escape(text)}</p>'] if text else []
