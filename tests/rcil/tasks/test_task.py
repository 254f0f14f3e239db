import pytest

from rcil.core.errors import ConfigError
from rcil.tasks.load import load_task


def test_defaults_are_the_papers(task_file):
    task = load_task(task_file)
    assert task.training.momentum == 0.9
    assert task.training.weight_decay == 1e-4
    assert task.training.power == 0.9
    assert task.training.held_out == 0.2
    assert task.method.name == "rcil"


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("training.crop=100000", "training.crop: 100000 is too large; the maximum is 4096"),
        ("training.batch=1000000", "training.batch: 1e+06 is too large; the maximum is 4096"),
        ("training.epochs=[30, 1000000]", "training.epochs: 1e+06 is too large; the maximum is 10000"),
        ("training.scale=[0.001, 2]", "training.scale: 0.001 is too small; the minimum is 0.05"),
        ("training.scale=[0.5, 100]", "training.scale: 100 is too large; the maximum is 10"),
        ("training.lr=abc", "training.lr: 'abc' is not a list"),
        ("training.workers=5000", "training.workers: 5000 is too large; the maximum is 256"),
        ("training.lr=[50, 1]", "training: lr 50 is too large for sgd; the maximum is 2"),
        ("method.lr={mib: [0.1, 3]}", "lr 3 is too large for sgd; the maximum is 2"),
        ("network.head_width=8000", "network.head_width: 8000 is too large; the maximum is 2048"),
        ("network.blocks=[1, 1, 900, 1]", "network.blocks: 900 is too large; the maximum is 100"),
        ("data.test_crop=9999", "data.test_crop: 9999 is too large; the maximum is 4096"),
        ("data.scale=0.0001", "greater than or equal to 0.01"),
        ("seed=99999999999", "seed: 99999999999 is too large"),
    ],
)
def test_absurd_values_are_refused(task_file, override, message):
    with pytest.raises(ConfigError) as error:
        load_task(task_file, [override])
    assert message in str(error.value) and error.value.message.startswith((f"--set {override}:", str(task_file)))


def test_the_limit_of_the_learning_rate_depends_on_the_optimiser(task_file):
    load_task(task_file, ["training.lr=[0.5, 0.5]"])
    with pytest.raises(ConfigError, match=r"lr 0.5 is too large for adamw; the maximum is 0.1"):
        load_task(task_file, ["training.lr=[0.5, 0.5]", "training.optimiser=adamw"])


def test_a_memory_is_for_steps_of_classes(task_file):
    overrides = ["protocol={domain_steps: [[a], [b]]}", "training.memory=5"]
    assert load_task(task_file, overrides[:1]).protocol.by_domain
    with pytest.raises(ConfigError, match="which domain protocols do not have"):
        load_task(task_file, overrides)
