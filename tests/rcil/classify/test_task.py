import itertools
from pathlib import Path

import pytest

from rcil.classify.data import class_steps, load_data
from rcil.classify.methods import make_classify_method
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


def test_the_preset_is_imagenet_100_in_six_steps(tmp_path, monkeypatch):
    """50 classes, then 5 x 10; ResNet-18 at stride 32 on images of 224 pixels; 90 epochs of batches of 64."""
    monkeypatch.chdir(tmp_path)
    for index, split in itertools.product(range(100), ("train", "val")):
        folder = tmp_path / "data" / "imagenet-100" / split / f"n{index:08d}"
        folder.mkdir(parents=True)
        (folder / "0.png").touch()
    task = load_classify_task(Path("imagenet-100"))
    assert task.data.root == tmp_path / "data" / "imagenet-100"
    data = load_data(task.data)
    assert [len(step) for step in class_steps(data.names, task.protocol, task.seed)] == [50, 10, 10, 10, 10, 10]
    network = task.network
    assert (network.backbone, network.width, network.output_stride, task.data.size) == ("resnet18", 64, 32, 224)
    first, later = (90 * images / 64 for images in (50 * 1300, 10 * 1300 + 70 * 20))  # 50 to 90 old classes: 70
    assert task.training.iterations == (pytest.approx(first, rel=0.01), pytest.approx(later, rel=0.01))
    assert task.memory.per_class == 20
    podnet = make_classify_method("podnet", task.method.options)
    assert (podnet.spatial, podnet.flat, podnet.margin, podnet.proxies) == (8, 10, 0.6, 10)
    assert task.training.lr[1] * podnet.tune_lr == pytest.approx(0.01)
    assert make_classify_method("eeil", task.method.others["eeil"]).tune_lr == 0.01
    assert load_classify_task(Path("imagenet-100"), ["data.root=here"]).data.root == tmp_path / "here"


def test_a_name_that_is_no_preset_gets_their_names():
    with pytest.raises(ConfigError, match="or a preset: imagenet-100"):
        load_classify_task(Path("imagenet-10"))
