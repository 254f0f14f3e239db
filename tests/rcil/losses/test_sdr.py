from __future__ import annotations

import math
from typing import TYPE_CHECKING

import pytest
import torch

from rcil.losses import (
    attraction,
    class_means,
    complete_background,
    prototype_matching,
    repulsion,
    resize_labels,
    sparsity,
    update_prototypes,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from torch import Tensor

# Three pixels of two features; classes 0, 2, 2.
FEATURES = torch.tensor([[1.0, 2.0, 4.0], [0.0, 6.0, 0.0]]).view(1, 2, 1, 3)
LABELS = torch.tensor([[[0, 2, 2]]])
PROTOTYPES = torch.tensor([[1.0, 2.0], [9.0, 9.0], [3.0, 3.0]])


def test_class_means() -> None:
    means, counts = class_means(FEATURES, LABELS, 4)
    assert means.tolist() == [[1, 0], [0, 0], [3, 3], [0, 0]]
    assert counts.tolist() == [1, 0, 2, 0]


def test_ignored_pixels_belong_to_no_class() -> None:
    means, counts = class_means(FEATURES, torch.tensor([[[255, 2, 255]]]), 3)
    assert means.tolist() == [[0, 0], [0, 0], [2, 6]]
    assert counts.tolist() == [0, 0, 1]


def test_labels_are_resized_by_nearest_neighbour() -> None:
    labels = torch.tensor([[[1, 2, 255, 4], [5, 6, 7, 8]]])
    assert resize_labels(labels, (1, 2)).tolist() == [[[1, 255]]]
    assert resize_labels(labels.byte(), (2, 4)).tolist() == labels.tolist()


def test_background_takes_the_old_prediction() -> None:
    old_logits = torch.tensor([[0.0, 5.0, 0.0], [1.0, 0.0, 1.0]]).view(1, 2, 1, 3)
    assert complete_background(torch.tensor([[[0, 0, 7]]]), old_logits).tolist() == [[[1, 0, 7]]]
    assert complete_background(torch.tensor([[[255, 0, 0]]]), old_logits).tolist() == [[[255, 0, 1]]]


def test_prototypes_are_the_mean_of_all_pixels_seen() -> None:
    features, labels = torch.randn(6, 3, 4, 4), torch.randint(5, (6, 4, 4))
    prototypes, seen = torch.zeros(5, 3), torch.zeros(5, dtype=torch.long)
    for start in (0, 1, 3):
        part = slice(start, {0: 1, 1: 3, 3: 6}[start])
        prototypes, seen = update_prototypes(prototypes, seen, *class_means(features[part], labels[part], 5))
    means, counts = class_means(features, labels, 5)
    assert torch.allclose(prototypes, means, atol=1e-6)
    assert torch.equal(seen, counts)


def test_absent_classes_keep_their_prototype_and_no_gradient_is_kept() -> None:
    means, counts = class_means(FEATURES.clone().requires_grad_(), LABELS, 3)
    prototypes, seen = update_prototypes(PROTOTYPES, torch.tensor([1, 5, 2]), means, counts)
    assert prototypes.tolist() == [[1, 1], [9, 9], [3, 3]]
    assert seen.tolist() == [2, 5, 4]
    assert not prototypes.requires_grad


def test_prototype_matching_by_hand() -> None:
    means, counts = class_means(FEATURES, LABELS, 3)
    # Class 0: (0² + 2²) / 2; class 2: 0; class 1 is absent.
    assert prototype_matching(means, counts, PROTOTYPES, torch.tensor([1, 1, 1])).item() == pytest.approx((2 + 0) / 2)
    # A class without prototype does not take part.
    assert prototype_matching(means, counts, PROTOTYPES, torch.tensor([1, 1, 0])).item() == pytest.approx(2)


def test_attraction_by_hand() -> None:
    # Class 0: (0 + 4) / 2; class 2: ((1 + 9) / 2 + (1 + 9) / 2) / 2.
    loss = attraction(FEATURES, LABELS, PROTOTYPES, torch.tensor([1, 1, 1]))
    assert loss.item() == pytest.approx((2 + 5) / 2)
    loss = attraction(FEATURES, LABELS, PROTOTYPES, torch.tensor([0, 1, 1]))
    assert loss.item() == pytest.approx(5)


def test_repulsion_by_hand() -> None:
    means = torch.tensor([[0.0, 0.0], [50.0, 50.0], [3.0, 4.0], [0.0, 8.0]])
    # Distances 5, 8 and 5; class 1 is absent.
    loss = repulsion(means, torch.tensor([1, 0, 2, 9]))
    assert loss.item() == pytest.approx((1 / 5 + 1 / 8 + 1 / 5) / 3)


def test_repulsion_pushes_apart() -> None:
    means = torch.tensor([[0.0], [1.0]], requires_grad=True)
    repulsion(means, torch.tensor([1, 1])).backward()
    assert means.grad.flatten().tolist() == pytest.approx([1, -1])


def test_sparsity_by_hand() -> None:
    # Class 0: features 1, 0; class 2: 2, 6, 4, 0 over 6.
    zero = (math.e + 1) / 1
    two = (math.exp(1 / 3) + math.e + math.exp(2 / 3) + 1) / 2
    assert sparsity(FEATURES, LABELS, 3).item() == pytest.approx((zero + two) / 2, rel=1e-6)


def test_sparsity_ignores_scale_and_negative_features() -> None:
    expected = sparsity(FEATURES, LABELS, 3).item()
    assert sparsity(7 * FEATURES, LABELS, 3).item() == pytest.approx(expected, rel=1e-6)
    assert sparsity(FEATURES.where(FEATURES > 0, -5), LABELS, 3).item() == pytest.approx(expected, rel=1e-6)


def matching_of(features: Tensor, labels: Tensor) -> Tensor:
    return prototype_matching(*class_means(features, labels, 3), PROTOTYPES, torch.tensor([1, 1, 1]))


def attraction_of(features: Tensor, labels: Tensor) -> Tensor:
    return attraction(features, labels, PROTOTYPES, torch.tensor([1, 1, 1]))


def repulsion_of(features: Tensor, labels: Tensor) -> Tensor:
    return repulsion(*class_means(features, labels, 3))


def sparsity_of(features: Tensor, labels: Tensor) -> Tensor:
    return sparsity(features, labels, 3)


TERMS = [matching_of, attraction_of, repulsion_of, sparsity_of]


@pytest.mark.parametrize("term", TERMS)
def test_no_class_gives_zero_and_zero_gradients(term: Callable[[Tensor, Tensor], Tensor]) -> None:
    features = FEATURES.clone().requires_grad_()
    loss = term(features, torch.full((1, 1, 3), 255))
    loss.backward()
    assert loss.item() == 0
    assert torch.equal(features.grad, torch.zeros_like(features))


@pytest.mark.parametrize("term", TERMS)
@pytest.mark.parametrize("value", [0.0, 1.0, -1.0])
def test_constant_features_give_finite_gradients(term: Callable[[Tensor, Tensor], Tensor], value: float) -> None:
    features = torch.full((1, 2, 1, 3), value, requires_grad=True)
    loss = term(features, LABELS)
    loss.backward()
    assert loss.isfinite()
    assert features.grad.isfinite().all()


def test_one_class_has_nothing_to_repel() -> None:
    features = FEATURES.clone().requires_grad_()
    loss = repulsion_of(features, torch.ones_like(LABELS))
    loss.backward()
    assert loss.item() == 0
    assert not features.grad.any()


@pytest.mark.parametrize("term", TERMS)
def test_gradcheck(term: Callable[[Tensor, Tensor], Tensor]) -> None:
    features = torch.rand(2, 2, 3, 3, dtype=torch.float64).add(0.1).requires_grad_()
    labels = torch.randint(3, (2, 3, 3))
    assert torch.autograd.gradcheck(lambda x: term(x, labels), (features,))
