"""The public Python API: its examples run, its imports are light, and its defaults are those of the commands."""

import ast
import doctest
import importlib
import inspect
import re
import shutil
import subprocess
import sys

import cv2
import numpy as np
import pytest
import torch
import yaml
from clips import make_clip
from networks import small_arch
from pages import ROOT
from sites import write_sample

import rcil
import rcil_export
import rcil_serve
from rcil.model.metadata import LineageEntry, Metadata, class_table
from rcil.nn import build

PACKAGES = (rcil, rcil_export, rcil_serve)
PUBLIC = [(package.__name__, name) for package in PACKAGES for name in package.__all__]
NAMES = ["background", "cone", "ball"]
BLOCK = """\
import rcil
model = rcil.load("model.safetensors")              # network and metadata in one object
result = model.predict(image)                       # HxWx3 uint8 RGB -> .mask, .confidence, .shares, .overlay()
report = rcil.add_class("model.safetensors", data="my_site", classes=["forklift"], output="forklift")
model.fold().save("folded.safetensors"); model.classes, model.step, model.lineage

import rcil_export
rcil_export.export("model.safetensors", "deployed", size=(512, 1024), precision="fp16", targets=("onnx", "engine"))
rcil_export.check("model.safetensors", "deployed/model.onnx", images="my_site").ok

import rcil_serve
with rcil_serve.open_model("deployed/model.onnx") as model:
    model.predict(image)
    for frame in model.stream("yard.mp4"): frame.time, frame.image, frame.result
"""


@pytest.fixture(scope="module")
def base(tmp_path_factory):
    """The files that the examples name: a tiny model, a site, a task, a photo and a clip."""
    root = tmp_path_factory.mktemp("api")
    torch.manual_seed(0)
    network = build(small_arch("resnet18", blocks=(1, 1, 1, 1)), [NAMES])
    entry = LineageEntry(step=0, source="rcil train")
    metadata = Metadata(architecture=network.arch, classes=class_table([NAMES]), lineage=(entry,))
    rcil.Model(network.eval(), metadata).save(root / "model.safetensors")
    mask = np.zeros((64, 96), np.uint8)
    mask[8:48, 4:30], mask[8:48, 34:60], mask[8:48, 64:90] = 1, 2, 3
    for split in ("train", "val"):
        for index in range(4):
            write_sample(root / "my_site", split, f"{split}_{index}", mask)
    (root / "my_site" / "classes.txt").write_text("\n".join([*NAMES, "forklift"]))
    task = {
        "recipe": "paper",
        "data": {"root": "my_site"},
        "protocol": {"steps": [["cone", "ball"], ["forklift"]]},
        "network": {"backbone": "resnet18", "width": 4, "blocks": [1, 1, 1, 1], "head_width": 8},
        "training": {"epochs": [1, 1], "batch": 4, "crop": 64, "workers": 0},
    }
    (root / "task.yaml").write_text(yaml.safe_dump(task))
    cv2.imwrite(str(root / "photo.jpg"), photo()[..., ::-1])
    make_clip(root / "yard.mp4", frames=3)
    return root


def photo():
    return np.random.default_rng(0).integers(0, 255, (64, 96, 3), np.uint8)


@pytest.fixture(scope="module")
def workplace(base, tmp_path_factory):
    """The same with an exported model."""
    root = tmp_path_factory.mktemp("workplace") / "here"
    shutil.copytree(base, root)
    assert rcil_export.export(
        root / "model.safetensors", root / "deployed", size=(64, 96), targets=["onnx"], rounds=0
    ).ok
    return root


@pytest.mark.parametrize(("package", "name"), PUBLIC)
def test_every_public_name_has_an_example_that_runs(package, name, workplace, tmp_path, monkeypatch):
    here = tmp_path / "here"
    shutil.copytree(workplace, here)
    monkeypatch.chdir(here)
    documented = getattr(importlib.import_module(package), name)
    names = {"rcil": rcil, "rcil_export": rcil_export, "rcil_serve": rcil_serve, "image": photo()}
    test = doctest.DocTestParser().get_doctest(inspect.getdoc(documented), names, name, None, None)
    assert test.examples, f"{package}.{name} has no example"
    said = []
    doctest.DocTestRunner(verbose=False).run(test, out=said.append)
    assert not said, "".join(said)


@pytest.mark.slow
def test_the_block_runs_as_written(base, tmp_path, monkeypatch):
    shutil.copytree(base, tmp_path / "here")
    monkeypatch.chdir(tmp_path / "here")
    names = {"image": photo()}
    exec(compile(BLOCK, "block", "exec"), names)
    assert [c.name for c in rcil.load(names["report"].model).classes] == [*NAMES, "forklift"]
    assert rcil.load("folded.safetensors").metadata.architecture.folded
    assert names["frame"].result.mask.shape == names["frame"].image.shape[:2]


def test_the_page_shows_the_block_and_its_other_examples_run(workplace, monkeypatch, capsys):
    page = (ROOT / "docs" / "python.md").read_text()
    first, *others = re.findall(r"```python\n(.*?)```", page, re.S)
    shown, block = (list(map(ast.dump, ast.parse(code).body)) for code in (first, BLOCK))
    assert shown[-len(block) :] == block
    monkeypatch.chdir(workplace)
    for block in others:
        exec(compile(block, "python.md", "exec"), {})
    assert "%" in capsys.readouterr().out


def test_the_page_names_all_that_is_public():
    page = (ROOT / "docs" / "python.md").read_text()
    missing = {f"{package}.{name}" for package, name in PUBLIC} - set(re.findall(r"`(rcil\w*\.\w+)", page))
    assert missing == {"rcil_serve.Prediction"}, "which is rcil.Prediction"


@pytest.mark.parametrize("package", PACKAGES)
def test_a_package_lists_its_names_and_no_others(package):
    assert set(package.__all__) <= set(dir(package))
    with pytest.raises(AttributeError, match="no attribute 'lode'"):
        _ = package.lode


def test_names_are_the_functions_even_after_everything_is_imported(workplace):
    """A subpackage of the same name would take its place as soon as it is imported."""
    assert all(callable(name) for name in (rcil.train, rcil_export.check, rcil_export.verify))


def test_serving_imports_no_torch_and_imports_are_light(workplace):
    code = (
        "import sys, rcil, rcil_export, rcil_serve\n"
        "heavy = {'numpy', 'cv2', 'pydantic', 'torch', 'onnxruntime', 'av'} & set(sys.modules)\n"
        "assert not heavy, heavy\n"
        "with rcil_serve.open_model('deployed/model.onnx', 'cpu') as model:\n"
        "    assert len(list(model.stream('yard.mp4'))) == 3\n"
        "assert 'torch' not in sys.modules\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True, cwd=workplace)


@pytest.mark.parametrize("command", ["add-class", "train", "eval"])
def test_functions_have_the_defaults_of_their_commands(command):
    from rcil.cli.app import eval_, train
    from rcil.cli.site import add_class

    called = {"add-class": (add_class, rcil.add_class), "train": (train, rcil.train), "eval": (eval_, rcil.evaluate)}
    typed, function = (inspect.signature(one).parameters for one in called[command])
    shared = (typed.keys() & function.keys()) - {"model", "data", "output", "task", "device", "method"}
    assert shared, command
    assert {name: typed[name].default for name in shared} == {name: function[name].default for name in shared}


def test_exports_have_the_defaults_of_the_command():
    from rcil_export.cli.app import check, export

    for command, function in ((export, rcil_export.export), (check, rcil_export.check)):
        typed, called = inspect.signature(command).parameters, inspect.signature(function).parameters
        for name in (typed.keys() & called.keys()) - {"model", "output", "first", "second"}:
            ours, theirs = called[name].default, typed[name].default
            ours = ",".join(ours) if isinstance(ours, tuple) else ours
            assert str(ours or "") == str(theirs or ""), name


def test_python_and_the_command_ask_for_the_same(base, monkeypatch):
    """Python once trained another method than the command, with another batch."""
    from typer.testing import CliRunner

    from rcil.cli.app import app

    asked = []

    def note(request, output, **options):
        asked.append(request)
        return {"rejected": None, "verdict": "accepted"}

    monkeypatch.chdir(base)
    monkeypatch.setattr("rcil.site.run.add_class", note)
    monkeypatch.setattr("rcil.api.teach", note)
    words = ["--from", "model.safetensors", "--data", "my_site", "--class", "forklift", "-o", "out", "--json"]
    assert CliRunner().invoke(app, ["add-class", *words]).exit_code == 0
    rcil.add_class("model.safetensors", data="my_site", classes=["forklift"], output="out")
    assert asked[0] == asked[1]
    assert (asked[1].method.name, asked[1].training.batch) == ("rcil-plus", 8)
