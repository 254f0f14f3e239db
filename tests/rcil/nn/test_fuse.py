"""Fusion: the folded result is the interpolation of both folded networks, layer by layer."""

import pytest
import torch
from networks import at_step, small_arch

from rcil.model.architecture import RC
from rcil.nn import RCConv, begin_step, build, fold
from rcil.nn.fuse import fuse
from rcil.nn.step import add_branches
from rcil.nn.units.norms import is_norm


def moved(model, seed=5):
    """A next step whose weights and statistics are somewhere else, as after training; no norm is switched off."""
    student = begin_step(model, ["new"], rows="balanced")
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in student.parameters():
            parameter.add_(0.05 * torch.randn(parameter.shape, generator=generator, dtype=parameter.dtype))
        for module in student.modules():
            if is_norm(module):
                gamma = module.weight
                gamma.copy_(gamma.where(gamma.abs() > 0.1, torch.full_like(gamma, 0.1)))
        for name, buffer in student.named_buffers():
            if name.endswith(("running_mean", "running_var")):
                buffer.add_(0.1 * torch.rand(buffer.shape, generator=generator, dtype=buffer.dtype))
    return student.eval()


@pytest.mark.parametrize(
    ("backbone", "changes"),
    [
        *((backbone, {"norm": norm}) for backbone in ("resnet18", "resnet50") for norm in ("batch", "abs")),
        ("resnet18", {"rc": RC(stages=("stage2", "head"))}),
    ],
    ids=str,
)
def test_folded_weights_are_interpolated(backbone, changes):
    old = at_step(small_arch(backbone, **changes), 1).double()
    new = moved(old)
    fused = fuse(new, old, 0.3)
    was, now, got = (fold(model)[0].state_dict() for model in (old, new, fused))
    for name, value in got.items():
        expected = now[name] if name.startswith("classifier") else torch.lerp(was[name], now[name], 0.3)
        torch.testing.assert_close(value, expected, msg=name)


def test_a_network_that_had_a_single_branch():
    plain = at_step(small_arch("resnet18", rc=None), 0).double()
    new = moved(add_branches(plain))
    was, now, got = (fold(model)[0].head.state_dict() for model in (plain, new, fuse(new, plain, 0.3)))
    for name, value in got.items():
        torch.testing.assert_close(value, torch.lerp(was[name], now[name], 0.3), msg=name)


@pytest.mark.parametrize("norm", ["batch", "abs"])
@pytest.mark.parametrize("late", [False, True], ids=["branches", "single branch before"])
def test_a_norm_after_the_sum_stays_and_both_together_are_interpolated(norm, late):
    old = at_step(small_arch("resnet18", norm=norm, rc=None if late else RC(norm_after=True)), 0).double()
    for module in old.modules():  # `moved` switches no norm off either
        if is_norm(module):
            torch.nn.init.uniform_(module.weight, 0.5, 1.5)
            torch.nn.init.uniform_(module.running_var, 0.5, 1.5)
    new = moved(add_branches(old, RC(norm_after=True)) if late else old)
    fused = fuse(new, old, 0.3)
    was, now, got = (fold(model)[0].state_dict() for model in (old, new, fused))
    for name, value in got.items():
        expected = now[name] if name.startswith("classifier") else torch.lerp(was[name], now[name], 0.3)
        torch.testing.assert_close(value, expected, rtol=1e-9, atol=1e-9, msg=name)
    for block, before in zip(fused.modules(), new.modules(), strict=True):
        if isinstance(block, RCConv):
            assert torch.equal(block.norm.running_var, before.norm.running_var)
            assert torch.equal(block.old.weight, block.new.weight) and block.old.weight is not block.new.weight
    assert build(fused.arch, fused.classifier.steps).state_dict().keys() == fused.state_dict().keys()


def test_the_next_step_starts_from_the_fused_function():
    old = at_step(small_arch("resnet18"), 1).double()
    fused = fuse(moved(old), old, 0.5)
    x = torch.randn(1, 3, 64, 64, dtype=torch.float64)
    student = begin_step(fused, [])
    assert fused.arch.rc.new == "merged" and student.arch == fused.arch
    with torch.no_grad():
        expected = fused.eval()(x)
        torch.testing.assert_close(student.eval()(x), expected)
        for block in student.modules():
            if isinstance(block, RCConv):
                block.mix.train()  # whatever is drawn
        torch.testing.assert_close(student(x), expected)


def test_a_channel_that_its_norm_has_switched_off_stays_finite():
    old = at_step(small_arch("resnet18"), 1)
    new = moved(old)
    with torch.no_grad():
        new.backbone.stem.norm.weight[0] = 0.0
    fused = fuse(new, old, 0.5)
    assert all(value.isfinite().all() for value in fused.state_dict().values())
    (_, was), (_, now), (_, got) = (list(fold(m)[0].backbone.stem.named_parameters())[1] for m in (old, new, fused))
    torch.testing.assert_close(got[0], (was[0] + now[0]) / 2)
