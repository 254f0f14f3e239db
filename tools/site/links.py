"""Links between files of the project as links between pages of the site, and a check of the site that was built."""

from __future__ import annotations

import posixpath
import re
import sys
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

ROOT = Path(__file__).parents[2]
ROOT_PAGES = ("ARCHITECTURE.md", "CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md")
LINK = re.compile(r"(?<=\]\()([^)\s]+)(?=\))")
FENCE = re.compile(r"(^```.*?^```|`[^`\n]+`)", re.S | re.M)
NAMED = re.compile(r"\[([\w/.-]+\.md)\](?=\(\1)")
"""A link whose text is its file, as in `[cli.md](cli.md)`; the site shows the title of the page instead."""
LOADING = {"img": "src", "script": "src", "link": "href", "iframe": "src", "source": "src", "video": "src"}
"""Elements that load something when a page is shown, and the attribute that names it."""


def site_path(path: str) -> str:
    """Where a file of the project is in the site: `docs` is its root, and the README its first page."""
    if path == "README.md":
        return "index.md"
    if path == "docs/README.md":
        return "guides.md"
    if path in ROOT_PAGES:
        return path.lower()
    return path.removeprefix("docs/").replace(".ipynb", ".md")


def rewritten(markdown: str, source: str) -> str:
    """A page with its links changed to those of the site; `source` is its file in the project."""
    here = posixpath.dirname(site_path(source))

    def moved(found: re.Match[str]) -> str:
        target, mark, anchor = found[0].partition("#")
        if not target or urlsplit(target).scheme:
            return found[0]
        path = posixpath.normpath(posixpath.join(posixpath.dirname(source), target))
        return posixpath.relpath(site_path(path), here or ".") + mark + anchor

    def titled(found: re.Match[str]) -> str:
        path = ROOT / posixpath.normpath(posixpath.join(posixpath.dirname(source), found[1]))
        return f"[{path.read_text('utf-8').splitlines()[0].lstrip('# ')}]"

    markdown = NAMED.sub(titled, markdown)
    pieces = FENCE.split(markdown)
    return "".join(piece if FENCE.fullmatch(piece) else LINK.sub(moved, piece) for piece in pieces)


class _Page(HTMLParser):
    """What a page links to, what it loads, and which anchors it has."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.links: list[str] = []
        self.loaded: list[str] = []
        self.anchors: set[str] = set()
        self.feed(html)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = dict(attrs)
        self.anchors |= {value for key in ("id", "name") if (value := given.get(key))}
        if tag == "a" and (link := given.get("href")):
            self.links.append(link)
        canonical = tag == "link" and given.get("rel") in ("canonical", "next", "prev")
        if tag in LOADING and not canonical and (link := given.get(LOADING[tag])):
            self.loaded.append(link)


def problems(site: Path) -> list[str]:
    """Links that lead nowhere, and files that a page or style sheet would load from elsewhere."""
    pages = {path.resolve(): _Page(path.read_text("utf-8")) for path in site.rglob("*.html")}
    found = []
    for path, page in pages.items():
        name = path.relative_to(site.resolve())
        found += [f"{name} loads {link}" for link in page.loaded if urlsplit(link).netloc]
        for link in [*page.links, *page.loaded]:
            parts = urlsplit(link)
            if parts.scheme or parts.netloc:
                continue
            target = _target(site, path, unquote(parts.path))
            if not target.exists():
                found.append(f"{name} links to {link}, which does not exist")
            elif parts.fragment and target in pages and unquote(parts.fragment) not in pages[target].anchors:
                found.append(f"{name} links to {link}, and that page has no such anchor")
    for sheet in site.rglob("*.css"):
        outside = re.findall(r"url\([\"']?((?:https?:)?//[^)\"']+)", sheet.read_text("utf-8"))
        found += [f"{sheet.relative_to(site)} loads {link}" for link in outside]
    return found


def _target(site: Path, page: Path, path: str) -> Path:
    start = site.resolve() if path.startswith("/") else page.parent
    target = (start / path.lstrip("/")).resolve() if path else page
    return target / "index.html" if target.is_dir() else target


def main() -> None:
    found = problems(Path(sys.argv[1]))
    for line in found:
        print(line)
    sys.exit(1 if found else 0)


if __name__ == "__main__":
    main()
