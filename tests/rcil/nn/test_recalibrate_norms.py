import pytest
import torch
from networks import NORMS, at_step, small_arch
from torch import nn

from rcil.methods import make_method
from rcil.nn.recalibrate_norms import recalibrate_norms
from rcil.nn.units.norms import is_norm
from rcil.nn.units.rc import RCConv

BATCHES = [torch.randn(4, 3, 33, 33, generator=torch.Generator().manual_seed(seed)) for seed in range(3)]


@pytest.mark.parametrize("norm", NORMS)
@pytest.mark.parametrize("after", [False, True], ids=["behind a block", "after the sum of a block"])
def test_statistics_are_those_of_the_evaluation_mix(norm, after):
    """By hand for the first norm after a branch: the mean over batches of what it gets with both branches averaged."""
    model = at_step(small_arch(norm=norm, rc={"norm_after": after}), 0)
    weights = {name: value.clone() for name, value in model.named_parameters()}
    layer = model.head.paths[1].norm if after else model.head.project.norm
    seen = []
    hook = layer.register_forward_pre_hook(lambda _, inputs: seen.append(inputs[0].detach().clone()))
    recalibrate_norms(model, BATCHES)
    hook.remove()
    mean = torch.stack([x.mean(dim=(0, 2, 3)) for x in seen]).mean(dim=0)
    variance = torch.stack([x.var(dim=(0, 2, 3)) for x in seen]).mean(dim=0)
    assert len(seen) == 3
    torch.testing.assert_close(layer.running_mean, mean, atol=1e-5, rtol=1e-4)
    torch.testing.assert_close(layer.running_var, variance, atol=1e-5, rtol=1e-4)
    assert all(torch.equal(value, weights[name]) for name, value in model.named_parameters())
    assert not model.training


def test_nothing_is_drawn(monkeypatch):
    model = at_step(small_arch(), 1)
    state = torch.get_rng_state()
    recalibrate_norms(model, BATCHES)
    assert torch.equal(torch.get_rng_state(), state)
    first = {name: value.clone() for name, value in model.named_buffers()}
    recalibrate_norms(model, BATCHES)
    for name, value in model.named_buffers():
        if not name.endswith("num_batches_tracked"):
            torch.testing.assert_close(value, first[name])


def test_momenta_and_frozen_branches_stay():
    model = at_step(small_arch(), 1)
    for module in model.modules():
        if is_norm(module):
            module.momentum = 0.37
    frozen = [value.clone() for b in model.modules() if isinstance(b, RCConv) for value in b.old.state_dict().values()]
    recalibrate_norms(model, BATCHES)
    assert {module.momentum for module in model.modules() if is_norm(module)} == {0.37}
    after = [value for b in model.modules() if isinstance(b, RCConv) for value in b.old.state_dict().values()]
    assert all(torch.equal(a, b) for a, b in zip(frozen, after, strict=True))


def test_evaluation_after_drop_path_gains_by_it():
    """Statistics of a network whose branches were drawn do not fit its evaluation; recalibrated ones do."""
    torch.manual_seed(0)
    model = at_step(small_arch(), 0)
    for module in model.modules():
        if isinstance(module, nn.BatchNorm2d):
            module.momentum = None
    with torch.no_grad():
        for images in BATCHES * 5:
            model.train()(images)
    seen = []
    hook = model.head.project.norm.register_forward_pre_hook(lambda _, inputs: seen.append(inputs[0]))
    norm = model.head.project.norm

    def misfit():
        seen.clear()
        with torch.no_grad():
            for images in BATCHES:
                model.eval()(images)
        return (torch.cat(seen).var(dim=(0, 2, 3)) / norm.running_var).log().abs().mean()

    drawn = misfit()
    recalibrate_norms(model, BATCHES)
    assert misfit() < 0.7 * drawn
    hook.remove()


def test_a_frozen_network_stays_to_the_bit():
    """As method `strict` leaves it: nothing but the rows of the new classes may change."""
    model = at_step(small_arch(), 0)
    student = make_method("strict").begin(model, ["forklift"])
    recalibrate_norms(student, BATCHES)
    with torch.no_grad():
        assert torch.equal(student(BATCHES[0])[:, :3], model(BATCHES[0]))
