from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import pytest
import torch

from rcil.core.errors import ConfigError
from rcil.losses import local_pod_embedding, map_distances
from rcil.losses.maps import class_schedule, mean_of_layers

if TYPE_CHECKING:
    from torch import Tensor


def local_pod(
    new: list[Tensor],
    old: list[Tensor],
    *,
    classes: int,
    new_classes: int,
    factor: float = 0.01,
    logits_factor: float = 5e-4,
) -> Tensor:
    """PLOP's distillation as `Plop` composes it."""
    distances = map_distances(new, old, kind="local")
    return mean_of_layers(distances, factor, logits_factor, class_schedule(classes, new_classes))


@pytest.mark.parametrize("case", ["16_1", "16_5"])
def test_official_loss_and_gradients(golden: Any, case: str, dtype: torch.dtype) -> None:
    expected = golden.json["plop"]["local_pod"][case]
    new = [golden.leaf(f"plop.pod.new.{i}", dtype) for i in range(5)]
    new.append(golden.leaf(f"plop.pod.{case}.logits_new", dtype))
    old = [golden.tensor(f"plop.pod.old.{i}", dtype) for i in range(5)]
    old.append(golden.tensor(f"plop.pod.{case}.logits_old", dtype))
    classes = expected["old_classes"] + expected["new_classes"]
    loss = local_pod(new, old, classes=classes, new_classes=expected["new_classes"])
    golden.check_value(loss, expected["loss"])
    loss.backward()
    for index, leaf in enumerate(new):
        golden.check_array(leaf.grad, f"plop.pod.{case}.grad.{index}")


@pytest.mark.parametrize("case", ["16_1", "16_5"])
def test_official_distance_of_every_layer(golden: Any, case: str, dtype: torch.dtype) -> None:
    names = [(f"plop.pod.new.{i}", f"plop.pod.old.{i}") for i in range(5)]
    names.append((f"plop.pod.{case}.logits_new", f"plop.pod.{case}.logits_old"))
    for (new, old), expected in zip(names, golden.json["plop"]["local_pod"][case]["distance_per_layer"], strict=True):
        maps = [golden.tensor(new, dtype)], [golden.tensor(old, dtype)]
        golden.check_value(local_pod(*maps, classes=1, new_classes=1, logits_factor=1.0), expected)


def test_official_embedding(golden: Any, dtype: torch.dtype) -> None:
    embedding = local_pod_embedding(golden.tensor("plop.pod.old.2", dtype) ** 2)
    golden.check_array(embedding, "plop.pod.embedding_of_old.2")


def test_embedding_by_hand() -> None:
    x = torch.tensor([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]]).view(1, 1, 2, 3)
    assert local_pod_embedding(x, (1,)).tolist() == [[2, 5, 2.5, 3.5, 4.5]]
    # Scale 2: cells of 1 x 1, the third column is left over; each cell gives its value twice.
    assert local_pod_embedding(x, (2,)).tolist() == [[1, 1, 2, 2, 4, 4, 5, 5]]
    assert local_pod_embedding(x, (1, 2)).shape == (1, 13)


def test_factors_and_schedule_by_hand() -> None:
    ones, zeros = torch.ones(1, 1, 4, 4), torch.zeros(1, 1, 4, 4)
    # Embedding of ones: 8 + 4 * 4 + 16 * 2 entries of 1, twice that many rows and columns counted together.
    norm = math.sqrt(8 + 16 + 32)
    loss = local_pod([ones, ones], [zeros, zeros], classes=8, new_classes=2, factor=0.3, logits_factor=0.1)
    assert loss.item() == pytest.approx((0.3 + 0.1) * 2 * norm / 2, rel=1e-6)


def test_identical_maps_have_no_distance_and_no_gradient() -> None:
    new = torch.randn(2, 3, 8, 8, requires_grad=True)
    loss = local_pod([new], [new.detach().clone()], classes=3, new_classes=1)
    loss.backward()
    assert loss.item() == 0
    assert torch.equal(new.grad, torch.zeros_like(new))


def test_gradcheck() -> None:
    new = torch.randn(2, 3, 4, 5, dtype=torch.float64, requires_grad=True)
    old = torch.randn(2, 2, 4, 5, dtype=torch.float64)

    def loss(x: Tensor) -> Tensor:
        return local_pod([x], [old], classes=3, new_classes=1)

    assert torch.autograd.gradcheck(loss, (new,))


@pytest.mark.parametrize("scales", [(), (0,), (4,), (1, 2, 4)])
def test_impossible_scales_are_refused(scales: tuple[int, ...]) -> None:
    with pytest.raises(ConfigError, match="3 x 9"):
        local_pod_embedding(torch.zeros(1, 1, 3, 9), scales)
