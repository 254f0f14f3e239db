import numpy as np
import pytest
from sites import write_sample

from rcil.errors import ConfigError
from rcil.train.plan import make_plan, resolve_groups
from rcil.train.task import ProtocolSection, load_task


def test_steps_by_name(task_file):
    plan = make_plan(load_task(task_file))
    assert [step.names for step in plan.steps] == [("background", "ball"), ("cone",)]
    for step in plan.steps:
        names = {s.name for s in step.train} | {s.name for s in step.validation}
        assert len(names) == len(step.train) + len(step.validation) == 10
    assert len(plan.test) == 10


def test_disjoint_leaves_later_classes_out(task_file):
    for index in range(8):
        write_sample(task_file.parent / "site", "train", f"only_ball_{index}", np.pad(np.ones((30, 30)), 10))
    plan = make_plan(load_task(task_file, ["protocol.setting=disjoint"]))
    assert {s.name.rstrip("0123456789") for s in plan.steps[0].train} == {"only_ball_"}


def test_joint_is_one_step(task_file):
    (step,) = make_plan(load_task(task_file), joint=True).steps
    assert step.names == ("background", "ball", "cone")


def test_groups_of_a_split_and_an_order():
    names = tuple(f"c{i}" for i in range(21))
    assert resolve_groups(ProtocolSection(split="15-1", order="voc-b"), names)[1:] == [[17], [3], [6], [18], [10]]
    assert resolve_groups(ProtocolSection(split="19-1"), names)[1] == [20]


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        (["protocol.steps=[[bal], [cone]]"], "Did you mean 'ball'"),
        (["data.test=vall"], "Did you mean 'val'"),
        (["training.held_out=0.999"], "too few"),
        (["protocol={split: 1-1, order: voc-a}"], "21 classes"),
    ],
)
def test_impossible_tasks(task_file, overrides, message):
    with pytest.raises(ConfigError, match=message):
        make_plan(load_task(task_file, overrides))
