"""README and the other pages say what is true: links lead somewhere, commands and options exist, the snippet runs."""

import re
from pathlib import Path

import pytest
from networks import at_step, small_arch
from typer.testing import CliRunner

import rcil.cli
import rcil_export.cli
import rcil_serve.cli
from rcil.checkpoint.file import load, save
from rcil.checkpoint.metadata import Metadata, class_table

ROOT = Path(__file__).parents[2]
PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").glob("**/*.md")])
README = (ROOT / "README.md").read_text()


@pytest.mark.parametrize("page", PAGES, ids=lambda path: path.name)
def test_links(page):
    for target in re.findall(r"\]\(([^)#]+)\)", page.read_text()):
        assert target.startswith("http") or (page.parent / target).exists(), target


def test_commands_and_options_exist():
    modules = {"rcil": rcil.cli, "rcil-export": rcil_export.cli, "rcil-serve": rcil_serve.cli}
    blocks = re.findall(r"^```(\w*)\n(.*?)^```", README, re.S | re.M)
    lines = [line.split() for language, block in blocks if not language for line in block.splitlines()]
    commands = [line for line in lines if line and line[0] in modules]
    assert len(commands) >= 4
    for script, command, *rest in commands:
        nested = [command, rest.pop(0)] if command == "data" else [command]
        done = CliRunner().invoke(modules[script].app, [*nested, "--help"], env={"COLUMNS": "200"})
        assert done.exit_code == 0, done.output
        shown = done.output
        for option in (word for word in rest if word.startswith("-")):
            assert option in shown, f"{script} {command} {option}"


def test_make_targets_exist():
    makefile = (ROOT / "Makefile").read_text()
    for text in (README, (ROOT / "CONTRIBUTING.md").read_text()):
        for target in re.findall(r"^make ([\w-]+)", text, re.M):
            assert re.search(rf"^{target}:", makefile, re.M), target


def test_the_snippet_runs(tmp_path, monkeypatch):
    model = at_step(small_arch(), 0)
    metadata = Metadata(architecture=model.arch, classes=class_table([list(model.names)]))
    save(tmp_path / "step0.safetensors", model, metadata)
    monkeypatch.chdir(tmp_path)
    (snippet,) = re.findall(r"```python\n(.*?)```", README, re.S)
    exec(compile(snippet, "README.md", "exec"), {})
    assert load(tmp_path / "step1.safetensors")[0].names[-1] == "forklift"


def test_architecture_is_short():
    assert len((ROOT / "ARCHITECTURE.md").read_text().splitlines()) < 80
