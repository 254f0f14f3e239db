import copy

import pytest
import torch
from networks import small_arch
from torch import nn

from rcil.nn import begin_step, build
from rcil.nn.units.rc import RCConv
from rcil.nn.units.sparse_mix import can_skip


def block(norm="batch", **geometry):
    """An RC block at the start of a later step, with weights and statistics that are not trivial."""
    torch.manual_seed(3)
    model = begin_step(build(small_arch("resnet18", norm=norm), [["background", "ball"]]), ["cone"]).double()
    found = next(m for m in model.modules() if isinstance(m, RCConv))
    for name, value in geometry.items():
        for conv in (found.old, found.new.conv):
            setattr(conv, name, value)
    nn.init.normal_(found.new.norm.weight)
    return found.train()


@pytest.mark.parametrize("norm", ["batch", "abs"])
@pytest.mark.parametrize(
    "geometry",
    [{}, {"stride": (2, 2)}, {"dilation": (2, 2), "padding": (2, 2)}, {"dilation": (8, 8), "padding": (8, 8)}],
)
def test_outputs_gradients_and_statistics_are_those_of_the_dense_block(norm, geometry):
    sparse = block(norm, **geometry)
    dense = copy.deepcopy(sparse)
    dense._skips = lambda x: False
    results = []
    for each in (sparse, dense):
        x = torch.randn(2, each.new.conv.in_channels, 9, 11, dtype=torch.float64, generator=torch.manual_seed(5))
        x.requires_grad_()
        torch.manual_seed(7)
        y = each(x)
        (y * torch.linspace(-1, 1, y.numel(), dtype=y.dtype).view_as(y)).sum().backward()
        gradients = [p.grad for p in each.parameters() if p.requires_grad]
        results.append([y, x.grad, *gradients, each.new.norm.running_mean, each.new.norm.running_var])
    assert sparse._skips(torch.zeros(1, dtype=torch.float64))
    assert len(results[0]) == 7
    for a, b in zip(*results, strict=True):
        assert torch.allclose(a, b, rtol=1e-10, atol=1e-12)


def test_extreme_draws():
    """All old, all new, all mixed: empty index lists must work."""
    each = block()
    x = torch.randn(1, each.new.conv.in_channels, 5, 5, dtype=torch.float64, requires_grad=True)
    for eta in (0.0, 0.5, 1.0):
        each.mix.draw = lambda like, eta=eta: torch.full(
            (each.mix.channels,), {1.0: 0.1, 0.0: 0.5, 0.5: 0.9}[eta], dtype=torch.float64
        )
        sparse = each(x)
        expected = each.act(torch.lerp(each.new(x), each.old(x), torch.tensor(eta, dtype=torch.float64)))
        assert torch.allclose(sparse, expected)
        sparse.sum().backward()
        assert torch.isfinite(x.grad).all()
        if eta == 1.0:
            assert each.new.conv.weight.grad.abs().max() == 0
        each.zero_grad()


def test_only_where_it_pays():
    x = torch.zeros(1)
    assert can_skip(nn.Conv2d(4, 4, 3), x)
    assert not can_skip(nn.Conv2d(4, 4, 3, groups=4), x)
    assert not can_skip(nn.Conv2d(4, 4, 3), torch.zeros(1, device="meta"))
    with torch.autocast("cpu", torch.bfloat16):
        assert not can_skip(nn.Conv2d(4, 4, 3), x)
    each = block()
    assert not each.eval()._skips(x)
    each.train().frozen = False
    assert not each._skips(x), "a past that learns needs all of its gradient"
