"""Frozen stages compute what they did before the step, take no gradient and stay in evaluation mode."""

import pytest
import torch
from networks import at_step, small_arch

from rcil.nn import begin_step
from rcil.nn.freeze import freeze_stages, set_frozen_modes


@pytest.mark.parametrize(
    ("backbone", "rc", "how"),
    [
        ("resnet18", {}, {}),
        ("efficientnet_lite0", {}, {}),
        ("resnet18", {}, {"absorb": True}),
        ("resnet18", {"norm_after": True}, {}),
        ("resnet18", {"stages": ("stage2", "stage4")}, {}),
    ],
    ids=str,
)
def test_frozen_stages_keep_the_function_of_the_step_before(backbone, rc, how):
    before = at_step(small_arch(backbone, rc=rc), 1).double()
    student = begin_step(before, ["another"], **how)
    x = torch.randn(2, 3, 64, 64, dtype=torch.float64)
    with torch.no_grad():
        changed = student.eval()(x, maps="before").stages[1] - before(x, maps="before").stages[1]
        assert changed.abs().max() > 1e-3, "the new branch changes the function, unless it is frozen"
        freeze_stages(student, 2)
        set_frozen_modes(student.train(), 2)
        new, old = student(x, maps="before").stages, before(x, maps="before").stages
    for stage in range(2):
        # Channels whose norm is switched off, which `at_step` makes, keep their kernels.
        assert (new[stage] - old[stage]).abs().max() <= 1e-5 * old[stage].abs().max()


@pytest.mark.parametrize(("rc", "how"), [({}, {"absorb": True}), ({"norm_after": True}, {})], ids=str)
def test_branches_that_were_not_merged_keep_their_kernels(rc, how):
    before = at_step(small_arch("resnet18", rc=rc), 0).double()
    student = begin_step(before, ["another"], merge=False, **how)
    x = torch.randn(2, 3, 64, 64, dtype=torch.float64)
    freeze_stages(student, 4)
    with torch.no_grad():
        new, old = student.eval()(x)[:, 1:3], before(x)[:, 1:3]
    torch.testing.assert_close(new, old, rtol=1e-9, atol=1e-9)


def test_gradients_end_at_the_frozen_stages():
    student = begin_step(at_step(small_arch(), 0), ["new"])
    freeze_stages(student, 3)
    set_frozen_modes(student.train(), 3)
    student(torch.randn(2, 3, 64, 64)).square().mean().backward()
    frozen = [student.backbone.stem, *student.backbone.stages[:3]]
    assert all(parameter.grad is None for part in frozen for parameter in part.parameters())
    assert not any(module.training for part in frozen for module in part.modules())
    last = student.backbone.stages[3]
    assert all(p.grad is not None for p in last.parameters() if p.requires_grad)
    assert last.training


def test_zero_freezes_nothing():
    student = begin_step(at_step(small_arch(), 0), ["new"]).train()
    trained = [name for name, p in student.named_parameters() if p.requires_grad]
    freeze_stages(student, 0)
    set_frozen_modes(student, 0)
    assert [name for name, p in student.named_parameters() if p.requires_grad] == trained
    assert student.backbone.stem.training
