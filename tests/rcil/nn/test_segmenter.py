import pytest
import torch
import torch.nn.functional as F
from networks import BACKBONES, NORMS, at_step, small_arch

from rcil.nn import build

STEPS = [["background", "a"]]


@pytest.mark.parametrize(("stride", "last"), [(16, (5, 7)), (8, (9, 13))])
@pytest.mark.parametrize("backbone", BACKBONES)
def test_maps_have_the_resolution_of_the_output_stride(backbone, stride, last):
    model = build(small_arch(backbone, output_stride=stride), STEPS).eval()
    with torch.no_grad():
        maps = model(torch.randn(1, 3, 65, 97), maps="before")
    assert [tuple(m.shape[2:]) for m in maps.stages] == [(17, 25), (9, 13), last, last]
    assert maps.encoder.shape[2:] == maps.decoder.shape[2:] == maps.logits_small.shape[2:] == last
    assert maps.logits.shape == (1, 2, 65, 97)
    assert maps.decoder.shape[1] == 16
    assert len(maps.distilled()) == 6


def test_before_and_after_differ_by_the_activation():
    model = at_step(small_arch("resnet50"), 0)
    x = torch.randn(1, 3, 65, 65)
    with torch.no_grad():
        before, after = model(x, maps="before"), model(x, maps="after")
    assert all(m.min() < -0.1 for m in before.stages)
    for a, b in zip([*before.stages, before.decoder], [*after.stages, after.decoder], strict=True):
        torch.testing.assert_close(F.leaky_relu(a, 0.01), b)
    torch.testing.assert_close(before.encoder, after.stages[-1])
    assert torch.equal(before.logits, after.logits)
    with torch.no_grad():
        assert torch.equal(before.logits, model(x))


@pytest.mark.parametrize("norm", NORMS)
@pytest.mark.parametrize("backbone", ["resnet18", "resnet50", "efficientnet_lite0"])
def test_gradients_reach_everything_that_trains(backbone, norm):
    torch.manual_seed(0)
    model = build(small_arch(backbone, norm=norm), STEPS).train()
    maps = model(torch.randn(2, 3, 65, 65), maps="before")
    (maps.logits.square().mean() + sum(m.square().mean() for m in maps.stages)).backward()
    dead = [n for n, p in model.named_parameters() if p.grad is None or not p.grad.isfinite().all()]
    assert dead == []


def test_stem_activation_is_an_option():
    x = torch.randn(1, 3, 33, 33)
    with_act, without = (build(small_arch(stem_activation=flag), STEPS).eval().backbone.stem for flag in (True, False))
    without.load_state_dict(with_act.state_dict())
    with torch.no_grad():
        torch.testing.assert_close(F.leaky_relu(without(x), 0.01), with_act(x))


def test_upsampling_has_half_pixel_centres():
    model = build(small_arch(), STEPS).eval()
    x = torch.randn(1, 3, 64, 64)
    with torch.no_grad():
        maps = model(x, maps="after")
    # 4 -> 64: the first eight output pixels lie before the centre of the first input pixel.
    corner = maps.logits[0, 0, :8, :8]
    torch.testing.assert_close(corner, maps.logits_small[0, 0, 0, 0].expand(8, 8))


@pytest.mark.parametrize(("backbone", "parameters"), [("resnet50", 23_508_032), ("resnet101", 42_500_160)])
def test_the_plain_backbone_has_the_published_size(backbone, parameters):
    """torchvision's counts without the final fc: 25,557,032 - 2,049,000 and 44,549,160 - 2,049,000."""
    with torch.device("meta"):
        model = build(small_arch(backbone, rc=None).replace(width=64), STEPS)
    assert sum(p.numel() for p in model.backbone.parameters()) == parameters
