"""Notebooks hold what running them prints, their commands are ours, and their pages show all of it."""

import base64
import json
import re
import subprocess
import sys

import pytest
from pages import ROOT, parse, words_of

from tools.site.notebooks import FOLDER, SHELL, _merged, page

PATHS = sorted(FOLDER.glob("*.ipynb"))
every_notebook = pytest.mark.parametrize("path", PATHS, ids=lambda path: path.stem)


def cells(path):
    return [cell for cell in json.loads(path.read_text("utf-8"))["cells"] if cell["cell_type"] == "code"]


def test_there_are_two():
    assert [path.stem for path in PATHS] == ["add_a_class", "your_own_network"]


@every_notebook
def test_every_cell_was_run(path):
    """In order, without an error, and without traces of the machine or of a terminal."""
    counts = [cell["execution_count"] for cell in cells(path)]
    assert None not in counts and counts == sorted(counts)
    kinds = {output["output_type"] for cell in cells(path) for output in cell["outputs"]}
    assert kinds <= {"stream", "execute_result", "display_data"}
    text = json.dumps([cell["outputs"] for cell in cells(path)])
    assert not re.search(r"\\u001b|/tmp/|/home/|/root/|so far\)", text)


@every_notebook
def test_commands_parse(path):
    sources = ["".join(cell["source"]) for cell in cells(path)]
    lines = [line for source in sources if source.startswith(SHELL) for line in source.splitlines()[1:]]
    lines = [line for line in lines if not line.startswith("export ")]
    assert lines
    for line in lines:
        words = words_of(line)
        assert words, line
        parse(words)


def test_a_page_shows_cells_outputs_and_pictures():
    picture = base64.b64encode(b"jpeg").decode()
    notebook = {
        "cells": [
            {"cell_type": "markdown", "source": ["# Title"]},
            {
                "cell_type": "code",
                "source": [SHELL, "rcil doctor"],
                "outputs": [{"name": "stdout", "text": ["fine\n"]}],
            },
            {"cell_type": "code", "source": "1 + 1", "outputs": [{"data": {"text/plain": "2"}}]},
            {
                "cell_type": "code",
                "source": "show()",
                "outputs": [{"data": {"image/jpeg": picture, "text/plain": "x"}}],
            },
        ]
    }
    text, pictures = page(notebook)
    assert text == (
        '# Title\n\n```\nrcil doctor\n```\n\n```{ .text title="Output" }\nfine\n```\n\n'
        '```python\n1 + 1\n```\n\n```{ .text title="Output" }\n2\n```\n\n'
        "```python\nshow()\n```\n\n![output of the cell above]({folder}/3-0.jpeg)\n"
    )
    assert pictures == {"3-0.jpeg": b"jpeg"}


def test_outputs_are_merged_and_cleaned():
    def stream(name, text):
        return {"output_type": "stream", "name": name, "text": text}

    progress = stream("stderr", "reading (0:00:30 so far)\n")
    found = _merged(
        [stream("stdout", "\x1b[1ma\x1b[0m\n"), progress, stream("stdout", "b\n"), stream("stderr", "bad\n")]
    )
    assert found == [stream("stdout", "a\nb\n"), stream("stderr", "bad\n")]
    assert _merged([{"output_type": "execute_result", "execution_count": 3, "data": {}}])[0]["execution_count"] is None


@pytest.mark.slow
@every_notebook
def test_it_runs(path):
    command = [sys.executable, "-m", "tools.site.notebooks", str(path), "--check"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
