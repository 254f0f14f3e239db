import pytest
import torch
from networks import NORMS, needs_abn, randomise
from torch import nn

from rcil.core.errors import MissingDependencyError
from rcil.nn.units.norms import AbsBatchNorm2d, affine_of, inplace_abn_classes, is_norm, make_norm


@pytest.mark.parametrize("kind", NORMS)
def test_affine_of_equals_the_layer_in_evaluation_mode(kind):
    norm = make_norm(kind, 32, eps=1e-3).double().eval()
    randomise(norm)
    x = torch.randn(2, 32, 5, 7, dtype=torch.float64)
    scale, shift = affine_of(norm)
    expected = x * scale.view(1, -1, 1, 1) + shift.view(1, -1, 1, 1)
    torch.testing.assert_close(norm(x.clone()), expected, rtol=1e-12, atol=1e-12)


def test_affine_of_a_batch_norm_by_hand():
    norm = nn.BatchNorm2d(2, eps=1.0)
    norm.weight.data = torch.tensor([2.0, -4.0])
    norm.bias.data = torch.tensor([1.0, 0.5])
    norm.running_mean = torch.tensor([3.0, 1.0])
    norm.running_var = torch.tensor([3.0, 15.0])
    scale, shift = affine_of(norm)
    assert scale.tolist() == [1.0, -1.0]
    assert shift.tolist() == [-2.0, 1.5]


def test_abs_norm_ignores_the_sign_of_gamma_and_adds_eps():
    norm = AbsBatchNorm2d(3, eps=1e-2).eval()
    norm.weight.data = torch.tensor([-0.5, 0.0, 0.5])
    scale, _ = affine_of(norm)
    expected = torch.tensor([0.51, 0.01, 0.51], dtype=torch.float64) / (1 + 1e-2) ** 0.5
    torch.testing.assert_close(scale, expected, rtol=1e-6, atol=0)


def test_abs_norm_gradient_takes_the_sign_of_gamma_and_survives_zero():
    torch.manual_seed(0)
    norm, x = AbsBatchNorm2d(3).double(), torch.randn(4, 3, 5, 5, dtype=torch.float64)
    mirror = nn.BatchNorm2d(3).double()
    norm.weight.data = torch.tensor([-0.5, 0.0, 0.5], dtype=torch.float64)
    mirror.weight.data = norm.weight.detach().abs() + norm.eps
    target = torch.randn(4, 3, 5, 5, dtype=torch.float64)
    for layer in (norm, mirror):
        ((layer(x) - target) ** 2).sum().backward()
    expected = mirror.weight.grad * torch.tensor([-1.0, 1.0, 1.0], dtype=torch.float64)
    torch.testing.assert_close(norm.weight.grad, expected)
    torch.testing.assert_close(norm.running_var, mirror.running_var)
    assert norm.num_batches_tracked == 1


@needs_abn
def test_abs_norm_trains_like_inplace_abn():
    torch.manual_seed(0)
    ours, theirs = make_norm("abs", 16).double(), make_norm("inplace", 16).double()
    randomise(ours)
    ours.weight.data[ours.weight.abs() < 1e-2] = 0.3  # inplace-ABN's backward divides by gamma
    theirs.load_state_dict(ours.state_dict())
    x = torch.randn(3, 16, 6, 5, dtype=torch.float64)
    a, b = x.clone().requires_grad_(), x.clone().requires_grad_()
    probe = torch.randn_like(x)
    for layer, leaf in ((ours, a), (theirs, b)):
        (layer(leaf * 1) * probe).sum().backward()
    torch.testing.assert_close(a.grad, b.grad, rtol=1e-8, atol=1e-9)
    torch.testing.assert_close(ours.weight.grad, theirs.weight.grad, rtol=1e-8, atol=1e-9)
    for key, value in ours.state_dict().items():
        torch.testing.assert_close(value, theirs.state_dict()[key])


@needs_abn
def test_inplace_norm_fuses_the_activation_on_request():
    norm = make_norm("inplace", 4, slope=0.2).eval()
    x = torch.tensor([-1.0, 2.0]).view(1, 1, 1, 2).expand(1, 4, 1, 2)
    out = norm(x.clone())
    torch.testing.assert_close(out[0, 0, 0], torch.tensor([-0.2, 2.0]), rtol=1e-4, atol=1e-4)
    assert is_norm(norm)


def test_missing_inplace_abn_names_the_remedy(monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "inplace_abn", None)
    with pytest.raises(MissingDependencyError, match="--no-build-isolation"):
        inplace_abn_classes()


def test_affine_of_refuses_what_it_does_not_know():
    with pytest.raises(TypeError, match="GroupNorm"):
        affine_of(nn.GroupNorm(2, 4))
