"""The pages say what is true: links and paths lead somewhere, commands parse, examples run, tables match the code."""

import ast
import re
import sys
from dataclasses import fields
from types import ModuleType
from unittest.mock import patch

import pytest
import yaml
from pages import (
    PAGES,
    ROOT,
    anchors,
    blocks,
    check_options,
    commands,
    exists,
    links,
    parse,
    paths,
    spans,
    visible_options,
    words_of,
)

from rcil.classify.task import ClassifyTask
from rcil.methods import METHODS, make_method
from rcil.tasks.task import Task
from rcil_export.checks.limits import DEFAULTS

DOCS = ROOT / "docs"
EXTEND = sorted((DOCS / "extend").glob("*.md"))
CLASSIFY = DOCS / "classify.md"
LEAST = {"data": {"root": "my_site"}, "protocol": {"split": "1-1"}}
"""What a fragment of a task file lacks."""
SET = re.compile(r"--set[ =]['\"]?([a-z_]+)(?:\.([a-z_]+)[a-z_.]*)?=")
KEY = re.compile(r"(?:data|protocol|network|method|memory|training)\.\w+")

FOREIGN = {
    *("--again", "--train", "--model-control-mode", "--find-links"),
    *("--entrypoint", "--no-healthcheck", "--shm-size", "--user"),
    *("--node-rank", "--signal"),
}
"""Options of other programs: `tools`, Triton, pip; docker; torchrun, Slurm."""

every_page = pytest.mark.parametrize("page", PAGES, ids=lambda path: str(path.relative_to(ROOT)))


@every_page
def test_links_and_anchors(page):
    for link in links(page):
        if link.startswith(("http://", "https://")):
            continue
        target, _, anchor = link.partition("#")
        path = (page.parent / target).resolve() if target else page
        assert path.exists(), link
        assert not anchor or anchor in anchors(path), link


@every_page
def test_commands_parse(page):
    for words in commands(page):
        try:
            parse(words)
        except Exception as error:  # Click's have no common root with ours
            pytest.fail(f"{' '.join(words)}: {getattr(error, 'message', error)}")


@every_page
def test_mentioned_commands_and_options_exist(page):
    for span in spans(page):
        if (words := words_of(span.replace("'", ""))) and words[1:] != ["..."]:
            check_options(words)


@every_page
def test_mentioned_options_exist(page):
    if page.name == "migrate.md":  # full of another program's
        return
    named = {re.split(r"[ =]", span)[0] for span in spans(page) if span.startswith("--")}
    assert named - visible_options() - FOREIGN == set()


@every_page
def test_paths_exist(page):
    missing = [path for path in paths(page) if not exists(path)]
    assert missing == []


@every_page
def test_keys_of_task_files_exist(page):
    for span in spans(page):
        if key := KEY.match(span):
            section, name = key[0].split(".")
            assert name in _section(ClassifyTask if page == CLASSIFY else Task, section), span


@every_page
def test_keys_that_commands_set_exist(page):
    for section, name in SET.findall(page.read_text()):
        tasks = [task for task in (Task, ClassifyTask) if section in task.model_fields]
        assert tasks and (not name or any(name in _section(task, section) for task in tasks)), f"{section}.{name}"


def _section(task, name):
    assert name in task.model_fields, name
    return task.model_fields[name].annotation.model_fields


@every_page
def test_yaml_blocks_are_tasks(page):
    for block in blocks(page):
        if block.language != "yaml":
            continue
        document = yaml.safe_load(block.text)
        if page == CLASSIFY:
            ClassifyTask.model_validate(document)
            continue
        method = Task.model_validate(LEAST | document).method
        for name, options in ({method.name: method.options} | method.others).items():
            make_method(name, **options)


@every_page
def test_python_blocks_are_python(page):
    for block in blocks(page):
        if block.language == "python":
            ast.parse(block.text)


@pytest.mark.parametrize("page", EXTEND, ids=lambda path: path.stem)
def test_examples_run(page, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    code = [block.text for block in blocks(page) if block.language == "python"]
    assert len(code) >= 2
    module = ModuleType(f"docs_{page.stem}")
    monkeypatch.setitem(sys.modules, module.__name__, module)  # dataclasses and pydantic look it up by name
    with patch.dict(METHODS):
        for text in code:
            exec(compile(text, str(page), "exec"), module.__dict__)


def test_there_is_something_to_check():
    for find in (commands, links, paths, spans):
        assert sum(len(find(page)) for page in PAGES) > 30, find.__name__


def test_there_is_a_page_for_each_thing_to_add():
    assert [page.stem for page in EXTEND] == ["backbone", "backend", "loss", "method"]


def test_the_index_has_every_page():
    listed = {(DOCS / link).resolve() for link in links(DOCS / "README.md")}
    pages = {page for page in PAGES if page.is_relative_to(DOCS) and "results" not in page.parts}
    assert pages - {DOCS / "README.md"} <= listed


def test_the_table_of_methods_is_complete():
    rows = re.findall(r"^\| `([\w-]+)` \|(.*)\| `(rcil/methods/\w+\.py)` \|$", (DOCS / "methods.md").read_text(), re.M)
    assert [name for name, _, _ in rows] == list(METHODS)
    documented = {}
    for name, cell, file in rows:
        base = re.match(r" as `([\w-]+)`", cell)
        options = [yaml.safe_load(span) for span in re.findall(r"`(\w+: [^`]+)`", cell)]
        documented[name] = (documented[base[1]] if base else {}) | {k: v for one in options for k, v in one.items()}
        assert documented[name] == _defaults(METHODS[name]), name
        assert METHODS[name].__module__.replace(".", "/") + ".py" == file


def _defaults(method):
    found = {option.name: option.default for option in fields(method) if option.init}
    return {name: _as_written(value) for name, value in found.items()}


def _as_written(value):
    """Numbers with three digits behind the point or as they are; tuples as lists."""
    match value:
        case tuple():
            return list(value)
        case float():
            return pytest.approx(value, abs=4e-4 if value > 0.1 else 0)
    return value


def test_the_table_of_limits_is_the_code():
    text = (DOCS / "export.md").read_text()
    for name in ("error", "agreement", "agreement_old_new", "miou_drop", "node"):
        (row,) = re.findall(rf"^\| `{name}` \|.*\| (\S+) \| (\S+) \| (\S+) \| (\S+) \|$", text, re.M)
        values = [getattr(DEFAULTS[precision], name) for precision in ("fp32", "fp16", "bf16", "int8")]
        assert [None if cell == "–" else float(cell) for cell in row] == values
