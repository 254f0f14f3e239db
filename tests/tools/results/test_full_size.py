"""The full-size tables are what their task files say, so that `rcil train` runs the same cells."""

from pathlib import Path

import pytest

from rcil.tasks.load import load_task
from tools.results.cells import cells_of
from tools.results.full_size import NAMES, TASKS, full_size, seen

TABLES = {table.name: table for table in full_size()}
METHOD_TABLES = [name for name in TABLES if (TASKS / f"{name}.yaml").is_file()]


def cells(name):
    return {(cell.row, cell.replica): cell for cell in cells_of(TABLES[name], Path("data"))}


@pytest.mark.parametrize("name", METHOD_TABLES)
def test_a_cell_is_what_rcil_train_runs(name):
    for (row, replica), cell in cells(name).items():
        if row == "joint":
            continue
        seed = replica.removeprefix("seed ")
        method = NAMES[row]
        own = load_task(TASKS / f"{name}.yaml", [f"seed={seed}"])
        section = own.method
        options = section.options if section.name == method else section.others.get(method, {})
        assert cell.task.method.options == options
        assert cell.task.method.lr == {key: rates for key, rates in section.lr.items() if key == method}
        for part in ("recipe", "protocol", "network", "training"):
            assert getattr(cell.task, part) == getattr(own, part), part
        assert cell.task.data.void_background == own.data.void_background


@pytest.mark.parametrize("name", METHOD_TABLES)
def test_joint_training_is_as_long_as_all_steps_together(name):
    own = load_task(TASKS / f"{name}.yaml")
    assert own.protocol.steps is not None
    first, later = own.training.epochs
    joint = cells(name)["joint", "seed 0"].task
    assert joint.training.epochs[0] == first + later * (len(own.protocol.steps) - 1)
    assert sorted(joint.protocol.steps[0]) == sorted(c for step in own.protocol.steps for c in step)


def test_only_the_most_important_rows_are_repeated():
    found = cells("voc-animals-4-1")
    assert {row for row, replica in found if replica == "seed 2"} == {"MiB", "RCIL", "RCIL+"}
    assert {row for row, replica in found if replica == "seed 0"} == set(NAMES)


def test_methods_share_step_0_and_tables_share_cells():
    found = cells("voc-animals-4-1")
    first = {found[row, "seed 0"].first_step for row in ("fine-tuning", "MiB", "PLOP", "RCIL", "RCIL+")}
    assert len(first) == 1
    branches = cells("voc-animals-branches")
    assert branches["RCIL", "seed 0"].id == found["RCIL", "seed 0"].id
    assert branches["from step 0 on", "seed 0"].first_step not in first


def test_a_page_says_what_a_step_sees():
    training = load_task(TASKS / "voc-animals-4-1.yaml").training
    assert seen(training).startswith("Step 0 has 800 iterations of 8 crops of 224 pixels")
    assert "every later step 160 (64 million)" in seen(training)  # 2 epochs of 640 crops of 224 x 224
