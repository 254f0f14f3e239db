"""The ablations in docs/results/tasks: every file makes its plan and its method, and the rows differ as stated."""

import json
import re
from pathlib import Path

import pytest
from typer.testing import CliRunner

from rcil.cli.app import app
from rcil.methods import make_method
from rcil.tasks.load import load_task
from rcil.tasks.plan import make_plan

FOLDER = Path(__file__).parents[3] / "docs" / "results" / "tasks"
FILES = sorted(FOLDER.glob("*.yaml"))
WINDOWS = (4, 8, 12, 16, 20, 24)
MAPS = ("stage1", "stage2", "stage3", "stage4", "decoder")


def method_of(name):
    task = load_task(FOLDER / f"{name}.yaml")
    return make_method(task.method.name, **task.method.options)


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_every_file_makes_its_plan_and_differs_from_its_preset_in_the_method_alone(path, tiny):
    order = re.match(r"order-(.)", path.stem)
    preset = load_task(Path(f"voc-15-1-order-{order[1]}" if order else "voc-15-1-overlapped"), tiny("voc"))
    task = load_task(path, tiny("voc"))
    assert task.name == path.stem
    assert (task.protocol, task.network, task.training) == (preset.protocol, preset.network, preset.training)
    make_method(task.method.name, **task.method.options)
    steps = make_plan(task).steps
    assert [len(step.names) for step in steps] == [16, 1, 1, 1, 1, 1]
    assert [step.names for step in steps] == [step.names for step in make_plan(preset).steps]


def test_no_two_rows_of_a_table_are_the_same():
    seen = {}
    for path in FILES:
        task = load_task(path)
        method = make_method(task.method.name, **task.method.options)
        table = path.stem.split("-")[0]
        assert (other := seen.setdefault((table, repr(method), task.protocol.order), path)) == path, (path, other)


def test_the_rows_of_each_table():
    names = {path.stem for path in FILES}
    chosen = {tuple(method_of(name).windows) for name in names if name.startswith("windows-")}
    assert chosen == {(k,) for k in WINDOWS} | {WINDOWS[:count] for count in range(1, 7)}
    chosen = {tuple(method_of(name).distilled) for name in names if name.startswith("maps-")}
    assert chosen == {(m,) for m in MAPS} | {MAPS[-count:] for count in range(1, 6)} | {MAPS[:4]}
    weights = [method_of(name) for name in names if name.startswith("frozen-weight-")]
    assert {m.old_weight for m in weights} == {0.9995, 0.75, 0.5, 0.25, 0.0005}
    assert {(m.unbiased, m.spatial, m.channel, m.mix, m.merge, m.freeze) for m in weights} == {
        (False, False, False, "fixed", True, True)
    }
    assert {method_of(f"pooling-{kind}").pooling for kind in ("none", "global", "max", "average")} | {"local"} == {
        method_of(name).pooling for name in names if name.startswith("pooling-")
    }
    assert len([name for name in names if name.startswith("order-")]) == 15


def test_the_page_names_every_table_and_no_file_that_is_missing():
    page = (FOLDER / "README.md").read_text()
    named = set(re.findall(r"`((?:distillation|rc|pooling|windows|maps|frozen|order)-[\w.-]+)`", page))
    names = {path.stem for path in FILES}
    assert named <= names
    assert {name for name in names - named if not name.startswith(("windows", "maps", "order"))} == set()


@pytest.mark.parametrize("name", ["windows-4-8", "pooling-max", "frozen-weight-0.75"])
def test_a_dry_run_shows_the_six_steps(name, tiny, tmp_path):
    overrides = [part for override in tiny("voc") for part in ("--set", override)]
    path = FOLDER / f"{name}.yaml"
    shown = CliRunner().invoke(
        app, ["train", str(path), "-o", str(tmp_path / "run"), "--dry-run", "--json", *overrides]
    )
    assert shown.exit_code == 0, shown.output
    steps = json.loads(shown.stdout)["steps"]
    assert [len(step["teaches"]) for step in steps] == [16, 1, 1, 1, 1, 1]
    assert not (tmp_path / "run").exists()
