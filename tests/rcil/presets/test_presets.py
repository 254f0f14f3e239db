import json
import re
from pathlib import Path

import pytest

from rcil.core.errors import CheckpointError, ConfigError
from rcil.data.datasets.cityscapes import CITIES
from rcil.losses import PCD_FACTORS
from rcil.methods import METHODS, make_method
from rcil.presets import preset_names, preset_text
from rcil.tasks.load import load_task
from rcil.tasks.plan import make_plan
from rcil.training.compare import cell_of
from rcil.training.run import run_task

TASKS = json.loads((Path(__file__).parents[2] / "golden" / "voc_tasks.json").read_text())["tasks"]
OFFICIAL = {
    **{f"voc-15-5-{setting}": ("voc", "15-5") for setting in ("overlapped", "disjoint")},
    **{f"voc-15-1-{setting}": ("voc", "15-5s") for setting in ("overlapped", "disjoint")},
    **{f"voc-10-1-{setting}": ("voc", "10-1") for setting in ("overlapped", "disjoint")},
    "voc-15-1-order-a": ("voc", "15-5s"),
    **{f"voc-15-1-order-{letter}": ("voc", f"15-5s_{letter}") for letter in "bcde"},
    **{f"ade-{split}": ("ade", split) for split in ("100-50", "100-10", "100-5")},
    "ade-50-50": ("ade", "50"),
    **{f"cityscapes-{split}": ("cityscapes_domain", split) for split in ("11-5", "11-1", "1-1")},
    **{f"cityscapes-{split}-clean": ("cityscapes_domain", split) for split in ("11-5", "11-1", "1-1")},
}
"""Every preset and the research code's task that it is."""


def official(name):
    dataset, task = OFFICIAL[name]
    return [group for _, group in sorted(TASKS[dataset][task].items(), key=lambda item: int(item[0]))]


def test_every_setting_of_the_paper_has_its_file():
    assert preset_names() == sorted(OFFICIAL)


@pytest.mark.parametrize("name", OFFICIAL)
def test_the_recipe_is_the_papers(name):
    task = load_task(Path(name))
    kind = name.split("-")[0]
    assert (task.name, task.data.kind, task.data.root) == (name, kind, Path("data") / kind)
    assert (task.network.backbone, task.network.output_stride, task.network.norm) == ("resnet101", 16, "abs")
    training = task.training
    assert task.network.pool_window == training.crop // task.network.output_stride == 32
    assert training.epochs == {"voc": (30, 30), "ade": (60, 60), "cityscapes": (50, 50)}[kind]
    assert (training.lr, training.batch, training.crop, training.scale) == ((0.02, 0.001), 24, 512, (0.5, 2.0))
    assert (training.augmentation, task.data.test_crop, task.data.scale) == ("random_resized_crop", 512, 1)
    assert (training.keep, training.validate_every) == ("last", None)
    assert task.network.pretrained == Path("resnet101-imagenet.safetensors")
    assert (training.momentum, training.weight_decay, training.power, training.held_out) == (0.9, 1e-4, 0.9, 0.2)
    assert task.protocol.setting == ("disjoint" if name.endswith("disjoint") else "overlapped")


@pytest.mark.parametrize("name", OFFICIAL)
def test_the_methods_have_their_factors(name):
    section = load_task(Path(name)).method
    rcil = make_method(section.name, **section.options)
    assert (section.name, rcil.distillation, rcil.gamma) == ("rcil", 100, 0.01)
    made = {other: make_method(other, **section.others.get(other, {})) for other in METHODS}
    benchmark = {"cityscapes": "cityscapes_domain"}.get(name.split("-")[0], name.split("-")[0])
    assert made["rcil-official"].benchmark == benchmark and benchmark in PCD_FACTORS
    assert made["mib"].weight == (100 if name.startswith(("voc-15-1", "voc-10-1")) else 10)
    factors = {"voc": (0.01, 5e-4), "ade": (1e-3, 1e-5), "cityscapes": (1e-4, 1e-3), "cityscapes-11-1": (1e-4, 1e-4)}
    assert (made["plop"].factor, made["plop"].logits_factor) == of_the_benchmark(name, factors)


@pytest.mark.parametrize("name", OFFICIAL)
def test_the_methods_have_the_learning_rates_of_their_scripts(name):
    task = load_task(Path(name))
    published = {
        "voc": (0.02, 0.001),
        "ade": (0.01, 0.001),
        "cityscapes": (0.02, 0.002),
        "cityscapes-11-1": (0.02, 0.004),
    }
    rates = {method: cell_of(task, method, 0).own_training.lr for method in METHODS}
    assert rates.pop("rcil-official") == of_the_benchmark(name, published)
    assert (rates.pop("mib"), rates.pop("plop")) == ((0.01, 0.001), (0.01, 0.001))
    assert set(rates.values()) == {(0.02, 0.001)}, "the paper's"


def of_the_benchmark(name, values):
    """The value of the longest key that the name of a preset starts with."""
    return values[max((key for key in values if name.startswith(key)), key=len)]


def test_another_method_of_a_preset_gets_its_own_options_and_learning_rates():
    task = load_task(Path("ade-100-50"), ["method.name=rcil-official"])
    assert task.method.options == {"benchmark": "ade"}
    assert (task.own_training.lr, task.training.lr) == ((0.01, 0.001), (0.02, 0.001))
    assert load_task(Path("ade-100-50"), ["method.name=plop", "method.options.floor=1"]).method.options == {
        "factor": 1e-3,
        "logits_factor": 1e-5,
        "floor": 1,
    }
    chosen = load_task(Path("ade-100-50"), ["method.name=rcil-official", "training.lr=[0.1, 0.2]"])
    assert chosen.own_training.lr == (0.1, 0.2), "what the user asks for"


@pytest.mark.parametrize("name", OFFICIAL)
def test_every_step_of_the_official_task_finds_its_images(name, tiny):
    plan = make_plan(load_task(Path(name), tiny(name.split("-")[0])))
    if name.startswith("cityscapes"):
        clean = name.endswith("clean")
        cities = [tuple(CITIES[c] for c in group if c < 18 or not clean) for group in official(name)]
        assert [step.teaches for step in plan.steps] == [group for group in cities if group]
        assert [len(step.names) for step in plan.steps] == [19] + [0] * (len(plan.steps) - 1)
        assert ({sample.domain for sample in plan.test} == {"frankfurt", "lindau", "munster"}) == clean
    else:
        assert [list(step.step.classes) for step in plan.steps] == official(name)
        assert len(plan.test) == 2
    assert all(step.train and step.validation for step in plan.steps)
    leaks = name.startswith("cityscapes") and not name.endswith("clean")
    assert [warning.split(" (")[0].split(" of ")[1] for warning in plan.warnings] == ["42 test images"] * leaks


class ReachedError(Exception):
    pass


UNBIASED = {"unce", "unkd", "pcd_spatial", "pcd_channel"}


@pytest.mark.parametrize(
    ("name", "overrides", "terms"),
    [
        ("voc-15-5-disjoint", [], UNBIASED),
        ("ade-100-50", ["method={name: rcil-official, options: {benchmark: ade}}"], UNBIASED),
        ("cityscapes-11-5", [], {"ce", "pcd_spatial", "pcd_channel"}),
    ],
)
def test_step_1_trains(name, overrides, terms, tiny, tmp_path, caplog):
    def listen(event):
        assert event.miou is None, "the last epoch is kept"
        if event.step == 1:
            assert set(event.terms) == terms
            raise ReachedError

    task = load_task(Path(name), [*tiny(name.split("-")[0]), "training.held_out=0.1", *overrides])
    with pytest.raises(ReachedError):
        run_task(task, tmp_path / "run", listen=listen)
    warned = re.findall(r"WARNING: \d+ of 42 test images \(\d\d\.\d %\)", caplog.text)
    assert len(warned) == (name == "cityscapes-11-5")


def test_the_pretrained_weights_are_needed_before_any_data(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(CheckpointError, match=r"^resnet101-imagenet\.safetensors, the pretrained weights") as caught:
        run_task(load_task(Path("voc-15-1-overlapped")), tmp_path / "run")
    assert "`rcil import resnet101_iabn_sync.pth.tar -o resnet101-imagenet.safetensors`" in caught.value.hint
    assert "network.pretrained=null" in caught.value.hint
    assert not (tmp_path / "run").exists()


def test_unknown_names():
    with pytest.raises(ConfigError, match="Did you mean 'ade-100-10'"):
        preset_text("ade-100-1")
