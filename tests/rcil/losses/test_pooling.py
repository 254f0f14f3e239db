import pytest
import torch
from torch.nn import functional as F

from rcil.core.errors import ConfigError
from rcil.losses import pcd_maps, pcd_paper


@pytest.fixture
def maps():
    torch.manual_seed(0)
    shapes = ((2, 6, 9, 11), (2, 8, 5, 6))
    return tuple([torch.randn(s, dtype=torch.float64) for s in shapes] for _ in range(2))


def test_average_and_channel_are_the_papers_terms(maps):
    both = pcd_maps(*maps, kind="average") + pcd_maps(*maps, kind="channel")
    torch.testing.assert_close(0.01 * both, pcd_paper(*maps))


@pytest.mark.parametrize("kind", ["none", "global", "max", "strip"])
def test_against_the_plain_definition(maps, kind):
    expected = []
    for new, old in zip(*maps, strict=True):
        a, b = new**2, old**2
        if kind == "none":
            parts = [(a - b).flatten(1)]
        elif kind == "global":
            parts = [a.mean((2, 3)) - b.mean((2, 3))]
        elif kind == "strip":
            rows, columns = (a.mean(3) - b.mean(3)).flatten(1), (a.mean(2) - b.mean(2)).flatten(1)
            parts = [torch.cat([rows, columns], dim=1)]
        else:
            windows = [(min(k, a.shape[2]), min(k, a.shape[3])) for k in (2, 4)]
            parts = [(F.max_pool2d(a, k, 1) - F.max_pool2d(b, k, 1)).flatten(1) for k in windows]
        expected.append(torch.stack([p.norm(dim=1).mean() for p in parts]).mean())
    torch.testing.assert_close(pcd_maps(*maps, kind=kind, windows=(2, 4)), torch.stack(expected).mean())


@pytest.mark.parametrize("kind", ["average", "channel", "none", "global", "max", "strip", "local"])
def test_identical_maps_have_no_distance_and_no_gradient(maps, kind):
    new = [m.clone().requires_grad_() for m in maps[0]]
    value = pcd_maps(new, maps[0], kind=kind)
    value.backward()
    assert value == 0
    assert all(m.grad is not None and (m.grad == 0).all() for m in new)


def test_unknown_kind(maps):
    with pytest.raises(ConfigError, match="Did you mean 'strip'"):
        pcd_maps(*maps, kind="stripe")
