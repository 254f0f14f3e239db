"""README says what is true: its make targets exist, its snippet runs; `test_docs.py` checks links and commands."""

import re

from networks import at_step, small_arch
from pages import ROOT, commands

from rcil.checkpoint.file import load, save
from rcil.model.metadata import Metadata, class_table

README = (ROOT / "README.md").read_text()


def test_the_three_scripts_are_shown():
    assert {words[0] for words in commands(ROOT / "README.md")} == {"rcil", "rcil-export", "rcil-serve"}


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
