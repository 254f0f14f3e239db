"""Every loss: float32 under autocast and for half-precision inputs, gradients in the inputs' dtype."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import torch

import rcil.losses
from rcil.losses import (
    attraction,
    binary_cross_entropy,
    channel_distance,
    class_means,
    encoder_mse,
    knowledge_distillation,
    local_pod_embedding,
    normalised_entropy,
    pcd_official,
    pcd_paper,
    prototype_matching,
    repulsion,
    sigmoid_distillation,
    sparsity,
    spatial_distance,
    unbiased_cross_entropy,
    unbiased_distillation,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from torch import Tensor

LABELS = torch.arange(2 * 8 * 20).view(2, 8, 20) % 5
SEEN = torch.ones(5, dtype=torch.long)

# Each takes new [2, 5, 8, 20] and old [2, 3, 8, 20].
LOSSES: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "spatial_distance": spatial_distance,
    "spatial_distance, large": lambda x, y: spatial_distance(x.repeat(1, 1, 3, 2), y.repeat(1, 1, 3, 2)),
    "channel_distance": channel_distance,
    "pcd_paper": lambda x, y: pcd_paper([x], [y]),
    "pcd_official": lambda x, y: sum(pcd_official([x, x], (y, y), classes=5, new_classes=2)),
    "local_pod_embedding": lambda x, y: local_pod_embedding(x).sum(),
    "unbiased_cross_entropy": lambda x, y: unbiased_cross_entropy(x, LABELS, 3),
    "unbiased_distillation": unbiased_distillation,
    "knowledge_distillation": knowledge_distillation,
    "encoder_mse": lambda x, y: encoder_mse(x[:, :3], y),
    "binary_cross_entropy": lambda x, y: binary_cross_entropy(x, LABELS),
    "sigmoid_distillation": sigmoid_distillation,
    "attraction": lambda x, y: attraction(x, LABELS, torch.ones(5, 5), SEEN),
    "prototype_matching": lambda x, y: prototype_matching(*class_means(x, LABELS, 5), torch.ones(5, 5), SEEN),
    "repulsion": lambda x, y: repulsion(*class_means(x, LABELS, 5)),
    "sparsity": lambda x, y: sparsity(x, LABELS, 5),
    "normalised_entropy": lambda x, y: normalised_entropy(x.abs()).sum(),
}


@pytest.fixture
def maps() -> tuple[Tensor, Tensor]:
    """Values that bfloat16 holds exactly."""
    new, old = torch.randn(2, 5, 8, 20), torch.randn(2, 3, 8, 20)
    return new.bfloat16().float(), old.bfloat16().float()


@pytest.mark.parametrize("name", LOSSES)
def test_autocast_and_half_inputs_change_nothing(name: str, maps: tuple[Tensor, Tensor]) -> None:
    new, old = maps
    expected = LOSSES[name](new, old)
    leaf = new.bfloat16().requires_grad_()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        under_autocast = LOSSES[name](new, old)
        value = LOSSES[name](leaf, old.bfloat16())
    assert expected.dtype == under_autocast.dtype == value.dtype == torch.float32
    assert under_autocast.item() == expected.item()
    assert value.item() == expected.item()
    value.backward()
    assert leaf.grad is not None
    assert leaf.grad.dtype == torch.bfloat16
    assert leaf.grad.isfinite().all()
    assert leaf.grad.any()


@pytest.mark.parametrize("name", LOSSES)
def test_float64_stays_float64(name: str, maps: tuple[Tensor, Tensor]) -> None:
    assert LOSSES[name](*(x.double() for x in maps)).dtype == torch.float64


@pytest.mark.parametrize("distance", [spatial_distance, channel_distance])
def test_squares_that_overflow_float16(distance: Callable[..., Tensor]) -> None:
    new, old = torch.full((1, 2, 20, 20), 6e4), torch.full((1, 2, 20, 20), 1e2)
    leaf = new.half().requires_grad_()
    value = distance(leaf, old.half())
    assert value.item() == pytest.approx(distance(new.half().float(), old).item(), rel=1e-6)
    assert value.isfinite()


def test_every_exported_name_exists() -> None:
    assert sorted(rcil.losses.__all__) == sorted(set(rcil.losses.__all__))
    for name in rcil.losses.__all__:
        assert hasattr(rcil.losses, name)
