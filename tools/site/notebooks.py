"""Notebooks: execute them in a folder of their own, store the outputs, and show them as pages of the site.

Examples:
    python -m tools.site.notebooks                  # all notebooks of docs/notebooks, in place
    python -m tools.site.notebooks NOTEBOOK --check  # execute without storing anything
"""

from __future__ import annotations

import argparse
import base64
import os
import re
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).parents[2] / "docs" / "notebooks"
SECONDS = 3600
"""Time limit of a cell."""
PROGRESS = re.compile(r"^.*\(\d+:\d\d:\d\d so far\)\n", re.M)
"""What commands print every half minute; how often depends on the machine."""
SHELL = "%%bash\n"
"""First line of a cell with commands; a command that fails ends the execution."""
ESCAPES = re.compile(r"\x1b\[[0-9;]*[A-Za-z]")


def execute(path: Path) -> Any:
    """Run all cells in an empty folder and return the notebook with their outputs; an error in a cell is raised."""
    import nbformat
    from nbclient import NotebookClient

    notebook = nbformat.read(path, as_version=4)  # type: ignore[no-untyped-call]
    bin_folder = str(Path(sys.executable).parent)
    os.environ["PATH"] = bin_folder + os.pathsep + os.environ.get("PATH", "")
    with tempfile.TemporaryDirectory() as folder:
        client = NotebookClient(
            notebook, timeout=SECONDS, kernel_name="python3", resources={"metadata": {"path": folder}}
        )
        client.execute()
    for index, cell in enumerate(notebook.cells):
        cell["id"] = f"cell-{index}"
        cell["metadata"] = {}
        if cell.cell_type == "code":
            cell["execution_count"] = index
            cell["outputs"] = _merged(cell["outputs"])
    notebook.metadata = {"kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"}}
    return notebook


def _merged(outputs: list[Any]) -> list[Any]:
    """Outputs in which the text of a program, which arrives in pieces, is one, without colours and progress."""
    kept: list[Any] = []
    for output in outputs:
        output.pop("execution_count", None)
        if output["output_type"] == "execute_result":
            output["execution_count"] = None
        if output["output_type"] == "stream":
            output["text"] = PROGRESS.sub("", ESCAPES.sub("", output["text"]))
        if output["output_type"] == "stream" and kept and kept[-1].get("name") == output["name"]:
            kept[-1]["text"] += output["text"]
        elif output.get("text") != "":
            kept.append(output)
    return kept


def page(notebook: dict[str, Any]) -> tuple[str, dict[str, bytes]]:
    """Markdown of a notebook, and the pictures that it shows by file name."""
    pictures: dict[str, bytes] = {}
    parts = []
    for index, cell in enumerate(notebook["cells"]):
        source = "".join(cell["source"]).strip()
        if cell["cell_type"] == "markdown":
            parts.append(source)
            continue
        shell = source.removeprefix(SHELL)
        parts.append(f"```{'python' if shell == source else ''}\n{shell}\n```")
        parts += _outputs(cell["outputs"], f"{index}", pictures)
    return "\n\n".join(parts) + "\n", pictures


def _outputs(outputs: list[dict[str, Any]], prefix: str, pictures: dict[str, bytes]) -> Iterator[str]:
    texts = []
    for number, output in enumerate(outputs):
        data = output.get("data", {})
        kind = next((kind for kind in ("image/png", "image/jpeg") if kind in data), None)
        if kind is not None:
            name = f"{prefix}-{number}.{kind.partition('/')[2]}"
            pictures[name] = base64.b64decode("".join(data[kind]))
            yield f"![output of the cell above]({{folder}}/{name})"
        else:
            texts.append("".join(output.get("text", data.get("text/plain", ""))))
    if text := ESCAPES.sub("", "".join(texts)).rstrip():
        yield f'```{{ .text title="Output" }}\n{text}\n```'


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("notebooks", nargs="*", type=Path, help="notebooks to execute (default: all)")
    parser.add_argument("--check", action="store_true", help="do not store the outputs")
    arguments = parser.parse_args()
    for path in arguments.notebooks or sorted(FOLDER.glob("*.ipynb")):
        import nbformat

        notebook = execute(path)
        if not arguments.check:
            nbformat.write(notebook, path)  # type: ignore[no-untyped-call]
        print(f"{path.name}: {sum(cell.cell_type == 'code' for cell in notebook.cells)} cells executed")


if __name__ == "__main__":
    main()
