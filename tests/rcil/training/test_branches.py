"""Runs of four later steps with each ablation of the branches: every checkpoint shows that it did what it says."""

import itertools

import numpy as np
import pytest
import torch
import yaml
from safetensors.torch import load_file
from sites import write_sample

from rcil.checkpoint.file import load
from rcil.nn.units.convnorm import kernel_of
from rcil.nn.units.rc import DropPathMix, FixedMix, RCConv
from rcil.tasks.load import load_task
from rcil.training.run import run_task

CLASSES = ["background", "a", "b", "c", "d", "e"]


@pytest.fixture(scope="module")
def task_file(tmp_path_factory):
    """Five classes, one per step, in six small images."""
    folder = tmp_path_factory.mktemp("five")
    mask = np.zeros((32, 40), np.uint8)
    for row in range(1, 6):
        mask[2:30, 8 * row - 8 : 8 * row - 2] = row
    for split in ("train", "val"):
        for index in range(6):
            write_sample(folder / "site", split, f"{split}_{index}", mask)
    (folder / "site" / "classes.txt").write_text("\n".join(CLASSES))
    document = {
        "name": "five",
        "recipe": "paper",
        "data": {"root": "site"},
        "protocol": {"steps": [[name] for name in CLASSES[1:]]},
        "network": {"backbone": "resnet18", "width": 4, "blocks": [1, 1, 1, 1], "head_width": 8},
        "training": {"epochs": [1, 1], "lr": [0.05, 0.02], "batch": 3, "crop": 32, "workers": 0, "save_every": 1},
    }
    (folder / "task.yaml").write_text(yaml.safe_dump(document))
    return folder / "task.yaml"


def run(task_file, output, options, name="rcil", steps=5, **how):
    method = f"method={{name: {name}, options: {yaml.safe_dump(options, default_flow_style=True).strip()}}}"
    protocol = f"protocol.steps={[[name] for name in CLASSES[1 : steps + 1]]}"
    run_task(load_task(task_file, [method, protocol]), output, **how)
    return [load(output / f"step{step}.safetensors")[0] for step in range(steps)]


def blocks(model):
    return {name: part for name, part in model.named_modules() if isinstance(part, RCConv)}


def kernel(part, *, with_norm):
    """The kernel of a branch or single conv, or of both branches of a block before the norm after their sum."""
    if isinstance(part, RCConv):
        return part.mixed().weight
    return kernel_of(part)[0].float() if with_norm else getattr(part, "conv", part).weight


ABLATIONS = {
    "all parts": {},
    "not merged": {"merge": False},
    "not frozen": {"freeze": False},
    "neither": {"merge": False, "freeze": False},
    "no drop-path": {"mix": "fixed"},
    "from step 0 on": {"late": False},
    "no norms, no drop-path": {"norms": "none", "mix": "fixed"},
    "norm after the sum": {"norms": "after"},
    "late stages": {"stages": ["stage4", "head"]},
}


@pytest.mark.parametrize("options", ABLATIONS.values(), ids=ABLATIONS)
def test_every_part_does_what_it_says_in_every_step(task_file, tmp_path, options):
    options = {"late": True, **options}
    merge, freeze, norms = options.get("merge", True), options.get("freeze", True), options.get("norms", "branch")
    models = run(task_file, tmp_path / "run", options)
    assert bool(blocks(models[0])) == (not options["late"])
    for before, model in itertools.pairwise(models):
        assert {name.partition(".")[0] for name in blocks(model)} == {"backbone", "head"}
        only_late = all(name.startswith(("backbone.stages.3", "head")) for name in blocks(model))
        assert only_late == ("stages" in options)
        first = "backbone.stages.0.0.conv1"
        if only_late:
            assert not torch.equal(*(m.get_submodule(first).conv.weight for m in (before, model))), "trained as usual"
        for name, block in blocks(model).items():
            was = before.get_submodule(name)
            assert isinstance(block.mix, FixedMix if options.get("mix") == "fixed" else DropPathMix)
            assert isinstance(block.new, torch.nn.Conv2d) == (norms != "branch")
            assert (block.norm is not None) == (norms == "after")
            assert block.frozen == freeze == (not any(p.requires_grad for p in block.old.parameters()))
            assert isinstance(block.old, torch.nn.Conv2d) == (merge or norms == "after")
            source = was if merge or not isinstance(was, RCConv) else was.old
            expected = kernel(source, with_norm=norms != "after")
            assert torch.equal(kernel(block.old, with_norm=True), expected) == freeze, "frozen: as the step began"
            trained = was.new if isinstance(was, RCConv) else was
            assert not torch.equal(kernel(block.new, with_norm=True), kernel(trained, with_norm=norms != "after"))


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("rcil", {"norms": "none"}),
        ("rcil", {"norms": "after"}),
        ("rcil", {"stages": ["stage4", "head"]}),
        ("rcil-plus", {"norms": "after"}),
    ],
    ids=str,
)
def test_an_interrupted_run_ends_bit_identical(task_file, tmp_path, name, options):
    options = {"late": True, **options}
    run(task_file, tmp_path / "whole", options, name, 2)

    def interrupt(event):
        if (event.step, event.epoch, event.iteration) == (1, 0, 1):
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run(task_file, tmp_path / "cut", options, name, 2, listen=interrupt)
    run(task_file, tmp_path / "cut", options, name, 2, resume=True)
    whole, cut = (load_file(tmp_path / folder / "step1.safetensors") for folder in ("whole", "cut"))
    assert whole.keys() == cut.keys()
    assert all(torch.equal(whole[key], cut[key]) for key in whole)
