"""The backbone that step 0 starts from."""

import pytest
import torch
from networks import randomise

from rcil.checkpoint.file import save_backbone
from rcil.core.errors import CheckpointError, ConfigError
from rcil.methods import make_method
from rcil.model.architecture import Architecture
from rcil.model.header import read_header
from rcil.model.metadata import Metadata
from rcil.nn import build
from rcil.tasks.load import load_task
from rcil.tasks.plan import make_plan
from rcil.training.estimate import estimate
from rcil.training.run import first_network, run_task


@pytest.fixture
def stored(task_file):
    """Writes a backbone as `rcil import` does, and returns its network: one branch, with the given activations."""

    def write(**activations):
        arch = Architecture(backbone="resnet18", width=4, blocks=(1, 1, 1, 1), head_width=8, rc=None, **activations)
        torch.manual_seed(0)
        plain = build(arch, [["background"]]).eval()
        randomise(plain)
        path = task_file.parent / "backbone.safetensors"
        save_backbone(path, plain.backbone.state_dict(), Metadata(kind="backbone", architecture=arch))
        return plain

    return write


def network(task_file, *overrides):
    task = load_task(task_file, [f"network.pretrained={task_file.parent / 'backbone.safetensors'}", *overrides])
    return first_network(task, make_method("rcil"), make_plan(task).steps[0]).eval()


@torch.no_grad()
def largest_difference(ours, theirs):
    """Of the four stages, relative to the largest value."""
    x = torch.randn(2, 3, 65, 65, generator=torch.Generator().manual_seed(0))
    pairs = zip(ours.backbone(x).after, theirs.backbone(x).after, strict=True)
    return max(float((a - b).abs().max() / b.abs().max()) for a, b in pairs)


@pytest.mark.parametrize("activations", [{"slope": 0.0}, {"slope": 0.01}, {"slope": 0.2, "stem_activation": False}])
def test_the_activations_are_those_of_the_weights(task_file, stored, activations):
    plain = stored(**activations)
    ours = network(task_file)
    assert ours.arch.slope == activations["slope"]
    assert largest_difference(ours, plain) < 1e-5


def test_the_task_may_choose_another_slope(task_file, stored):
    plain = stored(slope=0.0)
    assert network(task_file, "network.slope=0.01").arch.slope == 0.01
    assert largest_difference(network(task_file, "network.slope=0.01"), plain) > 1e-3
    assert network(task_file, "network.pretrained=null").arch.slope == 0.01


def test_a_relu_cannot_be_inverted(task_file, stored):
    stored(slope=0.0)
    with pytest.raises(ConfigError, match="norm 'inplace' inverts its activation"):
        network(task_file, "network.norm=inplace")


def test_the_slope_reaches_every_step(task_file, stored, tmp_path):
    stored(slope=0.0)
    overrides = [f"network.pretrained={tmp_path / 'backbone.safetensors'}", "training.epochs=[1, 1]"]
    run_task(load_task(task_file, overrides), tmp_path / "run")
    for step in (0, 1):
        assert read_header(tmp_path / "run" / f"step{step}.safetensors").metadata.architecture.slope == 0
    (tmp_path / "backbone.safetensors").unlink()
    (tmp_path / "run" / "step1.safetensors").unlink()
    run_task(load_task(task_file, overrides), tmp_path / "run", resume=True)
    assert (tmp_path / "run" / "step1.safetensors").exists(), "later steps do not need the weights"


def test_a_missing_file(task_file, tmp_path, caplog):
    task = load_task(task_file, [f"network.pretrained={tmp_path / 'none.safetensors'}", "training.crop=32"])
    with pytest.raises(CheckpointError, match=r"none\.safetensors, the pretrained weights that resnet18 starts from"):
        run_task(task, tmp_path / "run")
    assert not (tmp_path / "run").exists()
    assert len(estimate(task)) == 2, "a dry run does not need the weights"
    assert f"rcil import WEIGHTS -o {tmp_path / 'none.safetensors'}" in caplog.text
    assert "network.pretrained=null" in caplog.text
