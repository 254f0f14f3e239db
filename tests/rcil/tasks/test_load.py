from pathlib import Path

import pytest

from rcil.core.errors import ConfigError
from rcil.tasks.load import load_task

WEIGHTS = "resnet101-imagenet.safetensors"
"""What the presets start from."""
LINES = """\
recipe: paper
data: {root: site}
protocol:
  steps: [[ball]]

training:
  crop: 64
"""


def test_paths_are_relative_to_the_file(task_file):
    assert load_task(task_file).data.root == task_file.parent / "site"


def test_a_task_is_the_same_from_any_folder(task_file, tmp_path, monkeypatch):
    """Otherwise a run could be resumed only where it was started."""
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(task_file.parent)
    task = load_task(Path(task_file.name), ["training.batch=2"])
    assert task.data.root == task_file.parent / "site"
    monkeypatch.chdir(tmp_path / "here")
    assert load_task(Path("..") / task_file.relative_to(tmp_path), ["training.batch=2"]) == task


def test_overridden_paths_are_relative_to_the_current_folder(task_file, tmp_path, monkeypatch):
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    task = load_task(task_file, ["data.root=other", "network.pretrained=weights.safetensors"])
    assert task.data.root == tmp_path / "here" / "other"
    assert task.network.pretrained == tmp_path / "here" / "weights.safetensors"
    assert load_task(task_file, ["network.pretrained=imagenet"]).network.pretrained == "imagenet"


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
        (["seed=-1"], "seed: .* greater than or equal to 0"),
        (["training.scale=[2, 0.5]"], r"training: scale must be \(smallest, largest\), not \(2, 0.5\)"),
        (["training.augmentation=random_resize_crop"], "'resize_and_crop' or 'random_resized_crop'"),
        (
            ["training.augmentation=random_resized_crop", "training.focus=0.5"],
            "focus needs augmentation resize_and_crop",
        ),
        (["training.augmentation=random_resized_crop", "data.scale=0.5"], "with a scale of 0.5: set the scale to 1"),
        (["data.test_crop=8"], "data.test_crop: .* greater than or equal to 32"),
        (["training.keep=first"], "'best' or 'last'"),
        (["training.held_out=0"], "nothing can be validated: set keep to last"),
        (["training={held_out: 0, keep: last, validate_every: 2}"], "nothing can be validated"),
        (["training.batch"], "key=value"),
        (["name.x=1"], "not a section"),
        (["protocol.split=15-1"], "exactly one of split, steps, domains, domain_steps; not split and steps"),
        (["protocol={}"], "exactly one of .* none is given"),
        (["protocol={domains: 1-1, domain_steps: [[day]]}"], "not domains and domain_steps"),
        (["protocol={domains: 1-1, setting: disjoint}"], "applies to classes only"),
        (["protocol={domains: 1-1, order: voc-b}"], "order needs split"),
        (["protocol={steps: [[ball]], order: voc-b}"], "order needs split"),
        (["protocol={domain_steps: [[day]], domain_order: [day]}"], "domain_order needs domains"),
        (["data.variant=legacy"], "kind cityscapes"),
        (["data={kind: cityscapes, root: x, variant: legacy, test: test}"], "train and val"),
        (["data.variant=lgeacy"], "data.variant"),
        (["training.batch=[1"], "not YAML"),
    ],
)
def test_wrong_overrides(task_file, overrides, message):
    with pytest.raises(ConfigError, match=message):
        load_task(task_file, overrides)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (("crop: 64", "crop: 100000"), "line 7: training.crop: 100000 is too large"),
        (("crop: 64", "corp: 64"), "line 7: unknown key 'training.corp'"),
        (("crop: 64", "crop: 64\n  scale: [2, 1]"), "line 8: training: scale must be (smallest, largest)"),
        (("crop: 64", "lr:\n  - 0.1\n  - fast"), "line 9: training.lr.1: Input should be a valid number"),
        (("{root: site}", "{}"), "line 2: data.root: Field required"),
        (("  steps: [[ball]]", "  order: voc-b"), "line 3: protocol: give exactly one of"),
        (("training:\n", "training: [\n"), " is not YAML: line 8: "),
    ],
)
def test_errors_name_the_line(tmp_path, change, message):
    path = tmp_path / "task.yaml"
    path.write_text(LINES)
    load_task(path)
    path.write_text(LINES.replace(*change))
    with pytest.raises(ConfigError) as error:
        load_task(path)
    assert message in error.value.message and str(path) in error.value.message


def test_an_error_is_about_what_was_written_and_not_what_follows_from_it(tmp_path):
    """The recipe for sites derives the pooling window from the crop."""
    path = tmp_path / "task.yaml"
    path.write_text(LINES.replace("recipe: paper", "recipe: site").replace("crop: 64", "crop: 100000"))
    with pytest.raises(ConfigError, match=r"line 7: training\.crop: 100000 is too large"):
        load_task(path)


def test_an_override_has_no_line(tmp_path):
    path = tmp_path / "task.yaml"
    path.write_text(LINES)
    with pytest.raises(ConfigError) as error:
        load_task(path, ["training.crop=8"])
    assert error.value.message.startswith("--set training.crop=8: training.crop: ")


@pytest.mark.parametrize(
    "text", ["[1, 2]", "a: [", "\x00", "seed: 2001-13-45", "seed: !!int x", "[" * 2000, "&a {b: *a}"]
)
def test_wrong_files(tmp_path, text):
    (tmp_path / "t.yaml").write_text(text)
    with pytest.raises(ConfigError, match=r"t\.yaml"):
        load_task(tmp_path / "t.yaml")
    with pytest.raises(ConfigError, match="cannot read"):
        load_task(tmp_path / "none.yaml")


class TestPresets:
    def test_a_name_is_enough_and_paths_are_relative_to_the_current_folder(self):
        task = load_task(Path("voc-15-1-overlapped"), ["network.pretrained=weights.safetensors"])
        assert task.name == "voc-15-1-overlapped"
        assert (task.data.root, task.network.pretrained) == (Path("data/voc"), Path("weights.safetensors").absolute())
        assert load_task(Path("ade-100-5"), ["network.pretrained=null"]).network.pretrained is None
        assert load_task(Path("ade-100-5"), ["data.root=/ade"]).data.root == Path("/ade")

    def test_a_file_comes_first_and_a_folder_does_not(self, task_file, monkeypatch):
        monkeypatch.chdir(task_file.parent)
        Path("voc-15-5-disjoint").mkdir()
        assert load_task(Path("voc-15-5-disjoint")).name == "voc-15-5-disjoint"
        task_file.rename("voc-15-1-disjoint")
        assert load_task(Path("voc-15-1-disjoint")).name == "tiny"

    @pytest.mark.parametrize("name", ["voc-15-1-overlaped", "voc-15-1-overlapped.yaml"])
    def test_a_misspelt_name(self, name):
        with pytest.raises(ConfigError, match="Did you mean 'voc-15-1-overlapped'"):
            load_task(Path(name))

    def test_a_name_in_a_folder_is_a_file(self, tmp_path):
        with pytest.raises(ConfigError, match=r"or a preset\.$"):
            load_task(tmp_path / "voc-15-1-overlapped")


def test_a_base_gives_what_the_file_leaves_out(tmp_path, monkeypatch):
    """Sections are merged key by key; the root of the preset is that of the current folder, not of the file."""
    (tmp_path / "tasks").mkdir()
    path = tmp_path / "tasks" / "row.yaml"
    path.write_text("base: voc-15-1-overlapped\nname: row\nmethod: {options: {gamma: 0.1}}\ntraining: {batch: 8}")
    monkeypatch.chdir(tmp_path)
    task, preset = load_task(path, ["training.crop=64"]), load_task(Path("voc-15-1-overlapped"))
    assert (task.name, task.method.name, task.method.options) == ("row", "rcil", {"gamma": 0.1})
    assert (task.data.root, preset.data.root) == (tmp_path / "data" / "voc", Path("data/voc"))
    assert task.training == preset.training.model_copy(update={"batch": 8, "crop": 64})
    assert (task.protocol, task.method.lr) == (preset.protocol, preset.method.lr)
    assert preset.network.pretrained == Path(WEIGHTS)
    assert task.network == preset.network.model_copy(update={"pretrained": tmp_path / WEIGHTS})


@pytest.mark.parametrize(
    ("base", "message"),
    [("voc-15-1-overlaped", "Did you mean 'voc-15-1-overlapped'"), ("[1]", "base is not the name of a preset")],
)
def test_an_unknown_base(tmp_path, base, message):
    path = tmp_path / "row.yaml"
    path.write_text(f"base: {base}")
    with pytest.raises(ConfigError, match=message):
        load_task(path)
