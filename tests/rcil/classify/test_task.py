from pathlib import Path

import pytest

from rcil.classify.task import ClassifyTask, load_classify_task
from rcil.core.errors import ConfigError


def test_defaults_are_digits_half_first_then_five_steps(tmp_path):
    (tmp_path / "t.yaml").write_text("name: t")
    task = load_classify_task(tmp_path / "t.yaml")
    assert (task.data.kind, task.data.size, task.protocol.first, task.protocol.later_steps) == ("digits", 32, None, 5)
    assert task.memory.per_class == 20
    assert task.method.rc is True


def test_roots_are_relative_to_the_file_and_typed_ones_to_the_current_folder(task_file, tmp_path, monkeypatch):
    assert load_classify_task(task_file).data.root == tmp_path / "colours"
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    assert load_classify_task(task_file, ["data.root=other"]).data.root == tmp_path / "here" / "other"


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("trainig.batch=2", "Did you mean 'training'"),
        ("training.bacth=2", "Did you mean 'batch'"),
        ("method.name=eel", "method.name"),
        ("data.root=null", "kind folder needs root"),
        ("data={kind: digits, root: x}", "kind folder needs root"),
        ("training.shift=8", "is too large for images of 16 pixels"),
        ("training.batch=1", "training.batch"),
        ("memory.per_class=0", "memory.per_class"),
        ("training", "key=value"),
    ],
)
def test_what_is_wrong_is_explained(task_file, override, message):
    with pytest.raises(ConfigError, match=message):
        load_classify_task(task_file, [override])


@pytest.mark.parametrize(("text", "message"), [("- 1", "is not a task"), ("a: [", "is not YAML")])
def test_other_files_are_refused(tmp_path, text, message):
    path = tmp_path / "t.yaml"
    path.write_text(text)
    with pytest.raises(ConfigError, match=message):
        load_classify_task(path)
    with pytest.raises(ConfigError, match="cannot read"):
        load_classify_task(tmp_path / "none.yaml")


def test_the_task_of_the_results_page_is_valid():
    task = load_classify_task(Path(__file__).parents[3] / "docs" / "results" / "classify.yaml")
    assert isinstance(task, ClassifyTask)
    assert task.data.evaluate == "test"
