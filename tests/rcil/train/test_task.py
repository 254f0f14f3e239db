import pytest

from rcil.errors import ConfigError
from rcil.train.task import load_task


def test_defaults_are_the_papers(task_file):
    task = load_task(task_file)
    assert task.training.momentum == 0.9
    assert task.training.weight_decay == 1e-4
    assert task.training.power == 0.9
    assert task.training.held_out == 0.2
    assert task.method.name == "rcil"


def test_paths_are_relative_to_the_file(task_file):
    assert load_task(task_file).data.root == task_file.parent / "site"


def test_overrides(task_file):
    task = load_task(
        task_file, ["training.batch=2", "method.name=mib", "method.options.weight=5.5", "training.lr=[1, 2]"]
    )
    assert task.training.batch == 2
    assert task.method.options == {"weight": 5.5}
    assert task.training.lr == (1.0, 2.0)


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        (["trainig.batch=2"], "Did you mean 'training'"),
        (["training.bacth=2"], "Did you mean 'batch'"),
        (["training.batch=0"], "training.batch"),
        (["training.batch"], "key=value"),
        (["name.x=1"], "not a section"),
        (["protocol.split=15-1"], "either split"),
        (["training.batch=[1"], "not YAML"),
    ],
)
def test_wrong_overrides(task_file, overrides, message):
    with pytest.raises(ConfigError, match=message):
        load_task(task_file, overrides)


@pytest.mark.parametrize("text", ["[1, 2]", "a: [", "\x00"])
def test_wrong_files(tmp_path, text):
    (tmp_path / "t.yaml").write_text(text)
    with pytest.raises(ConfigError, match=r"t\.yaml"):
        load_task(tmp_path / "t.yaml")
    with pytest.raises(ConfigError, match="cannot read"):
        load_task(tmp_path / "none.yaml")
