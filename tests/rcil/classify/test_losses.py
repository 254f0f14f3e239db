import math

import pytest
import torch

from rcil.classify.losses import heads_distillation, nca, pod_flat, pod_spatial


def test_distillation_is_bce_of_softened_softmaxes_summed_over_heads():
    torch.manual_seed(0)
    new, old = torch.randn(3, 6), torch.randn(3, 5)
    expected = 0.0
    for part in (slice(0, 2), slice(2, 5)):
        p, q = torch.softmax(new[:, part] / 2, 1), torch.softmax(old[:, part] / 2, 1)
        expected += float(-(q * p.log() + (1 - q) * (1 - p).log()).mean())
    assert float(heads_distillation(new, old, (2, 3))) == pytest.approx(expected, rel=1e-5)


def test_a_head_of_one_class_has_nothing_to_distil():
    new = torch.tensor([[0.3, -1.0, 50.0, 2.0]], requires_grad=True)
    old = torch.tensor([[0.1, 0.2, -9.0]])
    both, first = heads_distillation(new, old, (2, 1)), heads_distillation(new[:, [0, 1, 3]], old[:, :2], (2,))
    assert both.item() == first.item()
    both.backward()
    assert new.grad[0, 2:].tolist() == [0.0, 0.0]


def test_distillation_is_least_where_the_teacher_is():
    old = torch.randn(4, 3, generator=torch.Generator().manual_seed(1))
    new = old.clone().requires_grad_()
    heads_distillation(new, old, (3,)).backward()
    assert new.grad.abs().max() < 1e-7


def test_nca_by_hand():
    scale, similarities = torch.tensor(5.0), torch.tensor([[0.2, 0.3, 0.1], [0.9, -0.5, -0.6]])
    labels = torch.tensor([1, 0])
    first = math.log(math.exp(1.0) + math.exp(0.5)) - 5 * (0.3 - 0.3)
    second = math.log(math.exp(-2.5) + math.exp(-3)) - 5 * (0.9 - 0.3)
    assert first > 0 > second
    loss = nca(scale * similarities, labels, scale, 0.3)
    assert float(loss) == pytest.approx(first / 2, rel=1e-5), "the second sample is beyond the margin and costs nothing"


def test_pod_spatial_by_hand():
    new = torch.tensor([[[[1.0, 2.0], [0.0, -1.0]]]])
    old = torch.tensor([[[[1.0, 0.0], [1.0, 0.0]]]])
    a = torch.tensor([1.0, 5.0, 5.0, 1.0])  # sums over height, then over width, of the squares
    b = torch.tensor([2.0, 0.0, 1.0, 1.0])
    expected = float((a / a.norm() - b / b.norm()).norm())
    assert float(pod_spatial([new], [old])) == pytest.approx(expected, rel=1e-6)
    assert float(pod_spatial([new, old], [old, old])) == pytest.approx(expected / 2, rel=1e-6), "mean over stages"
    assert float(pod_spatial([3 * new], [new])) == pytest.approx(0, abs=1e-6), "the scale of a map does not count"


def test_pod_flat_is_one_minus_cosine():
    new, old = torch.tensor([[1.0, 0.0], [2.0, 0.0]]), torch.tensor([[0.0, 3.0], [5.0, 0.0]])
    assert float(pod_flat(new, old)) == pytest.approx(0.5)
