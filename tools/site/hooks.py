"""Hooks of MkDocs: pages that are not in docs/, generated pages, notebooks, and the links between them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File, Files, InclusionLevel

from tools.site import links
from tools.site.commands import SCRIPTS, commands_page
from tools.site.notebooks import page as notebook_page
from tools.site.reference import PACKAGES, package_page

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"


def on_config(config: Any) -> None:
    """List the tables of results, which are many, in alphabetical order."""
    tables = sorted(path.name for path in (DOCS / "results").glob("*.md") if path.name != "README.md")
    for section in config.nav:
        if "Results" in section:
            section["Results"] += [{"All tables": [f"results/{name}" for name in tables]}]


def on_files(files: Files, config: Any) -> Files:
    """Add the pages of the project's root, the reference and the notebooks."""
    for found in list(files):
        if found.src_uri == "README.md" or found.src_uri.endswith(".ipynb"):
            files.remove(found)
    sources = ["README.md", "docs/README.md", *links.ROOT_PAGES]
    pages: dict[str, str | bytes] = {
        links.site_path(name): links.rewritten((ROOT / name).read_text("utf-8"), name) for name in sources
    }
    pages |= {f"reference/{name}.md": commands_page(name) for name in SCRIPTS}
    pages |= {f"reference/python/{name}.md": package_page(name) for name in PACKAGES}
    for path in sorted((DOCS / "notebooks").glob("*.ipynb")):
        text, pictures = notebook_page(json.loads(path.read_text("utf-8")))
        source = path.relative_to(ROOT).as_posix()
        pages[links.site_path(source)] = links.rewritten(text.replace("{folder}", path.stem), source)
        pages |= {f"notebooks/{path.stem}/{name}": content for name, content in pictures.items()}
    for uri, content in pages.items():
        files.append(File.generated(config, uri, content=content, inclusion=InclusionLevel.INCLUDED))
    return files


def on_page_markdown(markdown: str, page: Any, config: Any, files: Files) -> str:
    """Change links of the pages that MkDocs reads itself."""
    if page.file.abs_src_path is None or not Path(page.file.abs_src_path).is_relative_to(DOCS):
        return markdown
    return links.rewritten(markdown, f"docs/{page.file.src_uri}")
