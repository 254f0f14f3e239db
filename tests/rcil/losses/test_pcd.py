from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import pytest
import torch
from torch.nn import functional as F

from rcil.core.errors import ConfigError
from rcil.losses import (
    PCD_FACTORS,
    WINDOWS,
    Padding,
    channel_distance,
    fold_new_channels,
    pcd,
    pcd_official,
    pcd_paper,
    spatial_distance,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from torch import Tensor

CASES = ["voc_15-1", "voc_15-5", "ade_100-10", "cityscape_10-9", "cityscapes_domain"]
FACTORS = {"cityscape": "cityscapes"}
SHAPES = [(2, 3, 1, 1), (2, 5, 7, 9), (1, 3, 5, 40), (2, 40, 16, 16), (3, 4, 18, 18), (2, 6, 33, 65), (1, 3, 128, 128)]


# The official values


def official_maps(golden: Any, case: str, dtype: torch.dtype) -> tuple[list[Tensor], list[Tensor]]:
    new = [golden.leaf(f"pcd.new.{i}", dtype) for i in range(5)] + [golden.leaf(f"pcd.{case}.logits_new", dtype)]
    old = [golden.tensor(f"pcd.old.{i}", dtype) for i in range(5)] + [golden.tensor(f"pcd.{case}.logits_old", dtype)]
    return new, old


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("term", ["spatial", "channel"])
def test_official_values_and_gradients(golden: Any, case: str, term: str, dtype: torch.dtype) -> None:
    expected = golden.json["pcd"][case]
    factors = PCD_FACTORS[FACTORS.get(expected["dataset"], expected["dataset"])]
    new, old = official_maps(golden, case, dtype)
    terms = pcd_official(
        new,
        old,
        classes=expected["current_classes"],
        new_classes=expected["new_classes"],
        spatial_factors=factors.spatial,
        channel_factors=factors.channel,
    )
    value = terms[("spatial", "channel").index(term)]
    assert value.dtype == dtype
    golden.check_value(value, expected[term])

    value.backward()
    layers = 6 if term == "spatial" else 5
    for index in range(layers):
        name = f"pcd.{case}.grad_{term}.{index}"
        if name in golden and golden.tensor(name).any():
            golden.check_array(new[index].grad, name)
        elif name in golden:
            assert not new[index].grad.any()
        else:
            norm = expected[f"grad_l2_{term}"][str(index)]
            assert new[index].grad.norm().item() == pytest.approx(norm, rel=1e-6 if dtype == torch.float64 else 1e-4)
    if term == "channel":
        assert new[5].grad is None


@pytest.mark.parametrize("case", CASES)
def test_official_distance_of_every_layer(golden: Any, case: str, dtype: torch.dtype) -> None:
    new, old = official_maps(golden, case, dtype)
    expected = golden.json["pcd"][case]
    for index, distance in enumerate(expected["distance_per_layer_spatial"]):
        golden.check_value(spatial_distance(new[index], old[index]), distance)
    for index, distance in enumerate(expected["distance_per_layer_channel"]):
        golden.check_value(channel_distance(new[index], old[index]), distance)


def test_factors_are_the_official_ones(golden: Any) -> None:
    for name, factors in golden.json["pcd"]["factors"].items():
        assert PCD_FACTORS[FACTORS.get(name, name)]._asdict() == {k: tuple(v) for k, v in factors.items()}


# Against plain pooling


def pool(x: Tensor, window: int, padding: str) -> Tensor:
    if padding == "half":
        return F.avg_pool2d(x, window, 1, window // 2)
    return F.avg_pool2d(x, (min(window, x.shape[2]), min(window, x.shape[3])), 1)


def plain_spatial(new: Tensor, old: Tensor, windows: tuple[int, ...] = WINDOWS, padding: str = "half") -> Tensor:
    norms = [(pool(new**2, k, padding) - pool(old**2, k, padding)).flatten(1).norm(dim=1).mean() for k in windows]
    return torch.stack(norms).mean()


def plain_channel(new: Tensor, old: Tensor, width: int = 3, padding: str = "half") -> Tensor:
    if padding == "valid":
        width = min(width, new.shape[1])

    def along_channels(x: Tensor) -> Tensor:
        return F.avg_pool1d(x.flatten(2).transpose(1, 2), width, 1, width // 2 if padding == "half" else 0)

    return (along_channels(new**2) - along_channels(old**2)).flatten(1).norm(dim=1).mean()


def kinds(shape: tuple[int, ...]) -> Iterator[tuple[str, Tensor, Tensor]]:
    """Pairs of maps that are hard in different ways."""
    a, b = torch.randn(shape), torch.randn(shape)
    spike = torch.zeros(shape)
    spike[:, 0, shape[2] // 2, shape[3] // 2] = 1e3
    yield "normal", a, b
    yield "nearly identical", a, a + 1e-3 * b
    yield "last digits", a, a * (1 + 1e-6 * b)
    yield "offset", a + 100, b + 100
    yield "large offset, small difference", a + 1e4, a + 1e4 + b
    yield "heavy tails", (3 * a).exp(), (3 * b).exp()
    yield "outlier", a + spike, b
    yield "single pixel", spike, torch.zeros(shape)
    yield "rectified", a.relu(), b.relu()


def check_against(
    function: Callable[[Tensor, Tensor], Tensor],
    reference: Callable[[Tensor, Tensor], Tensor],
    new: Tensor,
    old: Tensor,
    tolerance: float = 1e-5,
) -> None:
    """Value and gradient of a float32 function against a float64 reference."""
    exact_new = new.double().requires_grad_()
    exact = reference(exact_new, old.double())
    (exact_gradient,) = torch.autograd.grad(exact, exact_new)
    new = new.clone().requires_grad_()
    value = function(new, old)
    (gradient,) = torch.autograd.grad(value, new)
    assert value.item() == pytest.approx(exact.item(), rel=tolerance, abs=0)
    error = gradient.double() - exact_gradient
    assert error.norm() <= tolerance * exact_gradient.norm()
    assert error.abs().max() <= tolerance * exact_gradient.abs().max()


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_spatial_equals_plain_pooling(shape: tuple[int, ...]) -> None:
    for _, new, old in kinds(shape):
        check_against(spatial_distance, plain_spatial, new, old)


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_channel_equals_plain_pooling(shape: tuple[int, ...]) -> None:
    for _, new, old in kinds(shape):
        check_against(channel_distance, plain_channel, new, old)


@pytest.mark.parametrize("padding", ["half", "valid"])
@pytest.mark.parametrize("windows", [(1,), (3,), (2, 5, 7), (40,)], ids=str)
@pytest.mark.parametrize("shape", [(2, 5, 7, 9), (2, 3, 21, 37)], ids=str)
def test_spatial_windows_and_padding(shape: tuple[int, ...], windows: tuple[int, ...], padding: Padding) -> None:
    check_against(
        lambda new, old: spatial_distance(new, old, windows, padding),
        lambda new, old: plain_spatial(new, old, windows, padding),
        torch.randn(shape),
        torch.randn(shape),
    )


@pytest.mark.parametrize("padding", ["half", "valid"])
@pytest.mark.parametrize("width", [1, 2, 3, 4, 9])
def test_channel_widths_and_padding(width: int, padding: Padding) -> None:
    check_against(
        lambda new, old: channel_distance(new, old, width, padding),
        lambda new, old: plain_channel(new, old, width, padding),
        torch.randn(2, 6, 4, 5),
        torch.randn(2, 6, 4, 5),
    )


def test_window_wider_than_the_channels_is_padded_or_clipped() -> None:
    new, old = torch.randn(2, 2, 3, 3), torch.randn(2, 2, 3, 3)
    for padding in ("half", "valid"):
        expected = plain_channel(new, old, 5, padding).item()
        assert channel_distance(new, old, 5, padding).item() == pytest.approx(expected, rel=1e-5)


@pytest.mark.parametrize("size", [16, 40])
def test_maps_that_pooling_cancels(size: int) -> None:
    """A checkerboard averages to almost nothing; rounding of anything larger would show."""
    board = (torch.arange(size)[:, None] + torch.arange(size)) % 2
    new, old = 1.1 * (1.0 + board).expand(2, 8, -1, -1), 1.1 * (2.0 - board).expand(2, 8, -1, -1)
    check_against(spatial_distance, plain_spatial, new, old, tolerance=2e-6)


@pytest.mark.parametrize("cached", [1, 1 << 30])
@pytest.mark.parametrize("small", [True, False])
def test_every_path_agrees(monkeypatch: pytest.MonkeyPatch, small: bool, cached: int) -> None:
    monkeypatch.setattr(pcd, "_is_small", lambda squares: small)
    monkeypatch.setattr(pcd, "_CACHED", cached)
    new, old = torch.randn(5, 6, 13, 11), torch.randn(5, 6, 13, 11)
    check_against(spatial_distance, plain_spatial, new, old)
    check_against(channel_distance, plain_channel, new, old)


def test_chunks_of_unequal_size(monkeypatch: pytest.MonkeyPatch) -> None:
    new, old = torch.randn(5, 2, 30, 30), torch.randn(5, 2, 30, 30)
    monkeypatch.setattr(pcd, "_CACHED", 2 * new[0].numel())
    check_against(spatial_distance, plain_spatial, new, old)
    check_against(channel_distance, plain_channel, new, old)


# Autograd


@pytest.mark.parametrize("distance", [spatial_distance, channel_distance])
@pytest.mark.parametrize("size", [4, 20])
def test_gradcheck_of_both_maps(distance: Callable[..., Tensor], size: int) -> None:
    shape = (2, 2, size, 3) if size == 4 else (1, 1, size, 20)
    new = torch.randn(shape, dtype=torch.float64, requires_grad=True)
    old = torch.randn(shape, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(distance, (new, old), fast_mode=size > 4)


def test_second_derivatives_are_refused() -> None:
    new, weight = torch.randn(1, 2, 4, 4, requires_grad=True), torch.ones((), requires_grad=True)
    value = weight * spatial_distance(new, torch.randn(1, 2, 4, 4))
    (gradient,) = torch.autograd.grad(value, new, create_graph=True)
    with pytest.raises(RuntimeError, match="once_differentiable"):
        gradient.sum().backward()


@pytest.mark.parametrize("size", [8, 24])
def test_one_map_is_kept_for_the_backward_pass(size: int) -> None:
    new, old = torch.randn(2, 3, size, size, requires_grad=True), torch.randn(2, 3, size, size)
    kept: list[Tensor] = []
    with torch.autograd.graph.saved_tensors_hooks(lambda x: kept.append(x) or x, lambda x: x):
        spatial_distance(new, old)
    extra = [x for x in kept if x.data_ptr() not in (new.data_ptr(), old.data_ptr())]
    assert sum(x.numel() for x in extra) == new.numel()


@pytest.mark.parametrize("size", [8, 24])
def test_no_gradient_is_computed_without_need(monkeypatch: pytest.MonkeyPatch, size: int) -> None:
    new, old = torch.randn(2, 3, size, size), torch.randn(2, 3, size, size)
    results = []
    for name in ("_by_axis", "_by_pixel_gram"):
        method = getattr(pcd, name)
        monkeypatch.setattr(pcd, name, lambda *a, method=method, **k: results.append(method(*a, **k)) or results[-1])
    spatial_distance(new, old)
    spatial_distance(new.requires_grad_(), old)
    assert [gradient is None for _, gradient in results] == [True, False]


def test_value_without_gradient() -> None:
    new, old = torch.randn(2, 3, 24, 24), torch.randn(2, 3, 24, 24)
    for distance, plain in ((spatial_distance, plain_spatial), (channel_distance, plain_channel)):
        value = distance(new, old)
        assert not value.requires_grad
        assert value.item() == pytest.approx(plain(new, old).item(), rel=1e-5)


@pytest.mark.parametrize("size", [6, 23])
def test_cached_matrices_survive_inference_mode(size: int) -> None:
    new, old = torch.randn(1, 2, size, size + 1), torch.randn(1, 2, size, size + 1)
    with torch.inference_mode():
        value = spatial_distance(new, old)
    new.requires_grad_()
    again = spatial_distance(new, old)
    again.backward()
    assert again.item() == value.item()
    assert new.grad is not None
    assert new.grad.any()


def test_memory_layout_does_not_matter() -> None:
    new, old = torch.randn(2, 3, 20, 24), torch.randn(2, 3, 20, 24)
    last = new.to(memory_format=torch.channels_last).requires_grad_()
    spread = torch.randn(2, 3, 20, 48)[..., ::2].copy_(old)
    for distance in (spatial_distance, channel_distance):
        assert distance(last, spread).item() == pytest.approx(distance(new, old).item(), rel=1e-6)
    check_against(lambda a, b: spatial_distance(a.to(memory_format=torch.channels_last), b), plain_spatial, new, old)


@pytest.mark.parametrize("size", [9, 24])
@pytest.mark.parametrize("distance", [spatial_distance, channel_distance])
def test_identical_maps_have_no_distance_and_no_gradient(distance: Callable[..., Tensor], size: int) -> None:
    new = torch.randn(2, 3, size, size, requires_grad=True)
    value = distance(new, new.detach().clone())
    value.backward()
    assert value.item() == 0
    assert torch.equal(new.grad, torch.zeros_like(new))


@pytest.mark.parametrize("size", [9, 24])
@pytest.mark.parametrize("distance", [spatial_distance, channel_distance])
def test_an_identical_sample_does_not_disturb_the_others(distance: Callable[..., Tensor], size: int) -> None:
    new, old = torch.randn(2, 3, size, size), torch.randn(2, 3, size, size)
    new[0] = old[0]
    new.requires_grad_()
    value = distance(new, old)
    value.backward()
    assert value.item() == pytest.approx(distance(new[1:], old[1:]).item() / 2, rel=1e-6)
    assert not new.grad[0].any()
    assert new.grad[1].all()


# By hand


def test_constant_maps_by_hand() -> None:
    new, old = torch.full((1, 2, 5, 6), 3.0), torch.full((1, 2, 5, 6), 1.0)
    # 9 - 1 = 8 everywhere; window 4 leaves 2 x 3 positions, window 8 is clipped to the map and leaves 1.
    expected = (8 * math.sqrt(2 * 2 * 3) + 8 * math.sqrt(2)) / 2
    assert spatial_distance(new, old, (4, 8), "valid").item() == pytest.approx(expected, rel=1e-6)
    # Width 3 is clipped to the two channels: one mean of 8 per pixel.
    assert channel_distance(new, old, 3, "valid").item() == pytest.approx(8 * math.sqrt(30), rel=1e-6)
    # Half padding, width 3: (0 + 8 + 8) / 3 in both channels.
    assert channel_distance(new, old).item() == pytest.approx(16 / 3 * math.sqrt(60), rel=1e-6)


def test_paper_convention_averages_maps_and_applies_gamma() -> None:
    new = [torch.randn(2, 3, 9, 9), torch.randn(2, 5, 30, 26)]
    old = [torch.randn(2, 3, 9, 9), torch.randn(2, 5, 30, 26)]
    pairs = list(zip(new, old, strict=True))
    skd = sum(plain_spatial(a, b, WINDOWS, "valid").item() for a, b in pairs) / 2
    ckd = sum(plain_channel(a, b, 3, "valid").item() for a, b in pairs) / 2
    assert pcd_paper(new, old).item() == pytest.approx(0.01 * (skd + ckd), rel=1e-5)
    assert pcd_paper(new, old, gamma=2.0).item() == pytest.approx(2 * (skd + ckd), rel=1e-5)


def test_new_channels_fold_into_background() -> None:
    logits = torch.arange(1.0, 6.0).view(1, 5, 1, 1)
    assert fold_new_channels(logits, 3).flatten().tolist() == [1 + 4 + 5, 2, 3]
    assert fold_new_channels(logits, 1).flatten().tolist() == [15]
    assert fold_new_channels(logits, 5) is logits


def test_logits_are_folded_before_squaring() -> None:
    new, old = torch.randn(2, 6, 4, 4), torch.randn(2, 4, 4, 4)
    expected = spatial_distance(fold_new_channels(new, 4), old).item()
    assert spatial_distance(new, old).item() == pytest.approx(expected, rel=1e-6)
    assert channel_distance(new, old).item() == channel_distance(fold_new_channels(new, 4), old).item()


# Refusals


@pytest.mark.parametrize(
    "call",
    [
        lambda x: spatial_distance(x, x[:, :, 1:]),
        lambda x: spatial_distance(x[:, :2], x),
        lambda x: spatial_distance(x[:0], x[:0]),
        lambda x: spatial_distance(x, x, ()),
        lambda x: spatial_distance(x, x, (0,)),
        lambda x: spatial_distance(x, x, (4,), "same"),
        lambda x: channel_distance(x, x, 0),
        lambda x: pcd_paper([], []),
        lambda x: pcd_paper([x], [x, x]),
        lambda x: pcd_official([x], [x], classes=2, new_classes=1),
        lambda x: pcd_official([x, x], [x, x], classes=2, new_classes=0),
        lambda x: pcd_official([x, x], [x, x], classes=2, new_classes=3),
        lambda x: fold_new_channels(x, 0),
    ],
)
def test_impossible_arguments_are_refused_with_a_hint(call: Callable[[Tensor], object]) -> None:
    with pytest.raises(ConfigError) as caught:
        call(torch.randn(1, 3, 4, 4))
    assert caught.value.hint
