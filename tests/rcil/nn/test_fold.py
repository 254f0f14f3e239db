import copy

import pytest
import torch
from networks import BACKBONES, NORMS, at_step, small_arch
from torch import nn

from rcil.model.architecture import Architecture
from rcil.nn import begin_step, build, cost, fold, plain_twin
from rcil.nn.fold import fold_layers
from rcil.nn.units.norms import is_norm
from rcil.nn.units.rc import RCConv


def assert_folds(model, size=(65, 81)):
    """fp64 below 1e-10, fp32 below 1e-4 of the logit range, same classes up to ties, cost of the plain twin."""
    x = torch.randn(2, 3, *size, generator=torch.Generator().manual_seed(1))
    with torch.no_grad():
        exact, exact_folded = model.double()(x.double()), fold(model)[0](x.double())
        single, single_folded = model.float()(x), fold(model)[0](x)
    assert (exact - exact_folded).abs().max() / exact.abs().max() < 1e-10
    assert (single - single_folded).abs().max() / (single.max() - single.min()) < 1e-4
    differs = exact.argmax(1) != exact_folded.argmax(1)
    top = exact.topk(2, dim=1).values
    assert not (differs & (top[:, 0] - top[:, 1] > 1e-9 * exact.abs().max())).any()
    folded, twin = fold(model)[0], plain_twin(model)
    assert cost(folded) == cost(twin)
    assert cost(folded).macs < cost(model).macs


@pytest.mark.parametrize("step", [0, 1, 3])
@pytest.mark.parametrize("norm", NORMS)
@pytest.mark.parametrize("backbone", BACKBONES)
def test_every_backbone_norm_and_step(backbone, norm, step):
    assert_folds(at_step(small_arch(backbone, norm=norm), step))


@pytest.mark.parametrize(
    "changes",
    [
        {"output_stride": 8},
        {"stem_activation": False},
        {"pool_window": 4},
        {"slope": 0.2},
        {"rc": None},
        {"rc": {"mix": "learnable"}},
        {"rc": {"mix": "fixed", "old_weight": 0.25}},
    ],
    ids=str,
)
@pytest.mark.parametrize("backbone", ["resnet50", "efficientnet_lite0"])
def test_every_option(backbone, changes):
    model = at_step(small_arch(backbone, **changes), 0)
    x = torch.randn(1, 3, 97, 65, dtype=torch.float64)
    with torch.no_grad():
        before, after = model.double()(x), fold(model)[0](x)
    assert (before - after).abs().max() / before.abs().max() < 1e-10


@pytest.mark.slow
@pytest.mark.parametrize("backbone", BACKBONES)
def test_full_width(backbone):
    assert_folds(at_step(Architecture().replace(backbone=backbone), 1), size=(97, 129))


def test_nothing_else_is_left():
    folded, report = fold(at_step(small_arch("resnet50"), 1))
    assert not [m for m in folded.modules() if is_norm(m) or isinstance(m, RCConv)]
    assert report.count("rc") == 16 + 4
    assert report.count("classifier") == report.count("sum+norm") == 1
    assert report.count("conv+norm") == 1 + 2 * 16 + 4 + 1  # stem, 1x1 pairs, shortcuts, pooled path
    assert folded.arch.folded
    assert folded.arch.rc is None


def test_idempotent():
    folded, _ = fold(at_step(small_arch(), 1))
    again, report = fold(folded)
    assert report.layers == ()
    assert again.arch == folded.arch
    assert all(torch.equal(value, again.state_dict()[key]) for key, value in folded.state_dict().items())


def test_the_input_is_not_touched():
    model = at_step(small_arch(), 1).train()
    before = copy.deepcopy(model.state_dict())
    grads = {name: p.requires_grad for name, p in model.named_parameters()}
    fold(model)
    assert model.training
    assert all(torch.equal(before[key], value) for key, value in model.state_dict().items())
    assert grads == {name: p.requires_grad for name, p in model.named_parameters()}


def test_folding_a_network_in_training_mode_gives_the_evaluation_function():
    model = at_step(small_arch(), 1)
    x = torch.randn(1, 3, 33, 33)
    with torch.no_grad():
        expected = model(x)
        torch.testing.assert_close(fold(model.train())[0](x), expected, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("backbone", ["resnet18", "resnet50", "efficientnet_lite0"])
def test_folded_weights_load_into_the_plain_twin(backbone):
    model = at_step(small_arch(backbone), 2)
    folded, twin = fold(model)[0], plain_twin(model)
    assert twin.arch == folded.arch
    assert twin.names == folded.names
    assert [(k, v.shape) for k, v in twin.state_dict().items()] == [
        (k, v.shape) for k, v in folded.state_dict().items()
    ]
    twin.load_state_dict(folded.state_dict())
    x = torch.randn(1, 3, 65, 65)
    with torch.no_grad():
        assert torch.equal(twin.eval()(x), folded(x))


def test_the_plain_twin_of_a_plain_network_is_its_folded_form():
    model = build(small_arch(rc=None), [["background", "a"]])
    assert [(k, v.shape) for k, v in plain_twin(model).state_dict().items()] == [
        (k, v.shape) for k, v in fold(model)[0].state_dict().items()
    ]


def test_any_module_folds_the_root_included():
    block = at_step(small_arch(), 0).head.paths[1]
    x = torch.randn(1, 64, 9, 9)
    folded, report = fold_layers(block)
    assert [(layer.name, layer.kind) for layer in report.layers] == [("", "rc")]
    with torch.no_grad():
        torch.testing.assert_close(folded(x), block(x), rtol=1e-4, atol=1e-4)


def test_cost_does_not_grow_with_steps():
    model = build(small_arch(), [["background"]])
    first = cost(fold(model)[0])
    for step in range(1, 4):
        model = begin_step(model, [f"c{step}"])
        now = cost(fold(model)[0])
        rows = step * (16 + 1)  # only the new classifier rows
        assert now.parameters == first.parameters + rows


def test_a_left_over_norm_is_not_passed_over():
    model = at_step(small_arch(), 0)
    model.head.pool = nn.Sequential(model.head.pool, nn.BatchNorm2d(16))
    with pytest.raises(AssertionError, match=r"head\.pool\.1"):
        fold(model)
