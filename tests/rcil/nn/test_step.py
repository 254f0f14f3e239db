import pytest
import torch
from networks import at_step, small_arch

from rcil.core.errors import ConfigError
from rcil.nn import RCConv, begin_step, build, fold


@pytest.fixture
def model():
    return at_step(small_arch("resnet50"), 0)


def rc_blocks(model):
    return [m for m in model.modules() if isinstance(m, RCConv)]


def test_the_teacher_is_not_touched(model):
    before = {key: value.clone() for key, value in model.state_dict().items()}
    student = begin_step(model, ["c"])
    with torch.no_grad():
        for parameter in student.parameters():
            parameter.add_(1)
    assert all(torch.equal(before[key], value) for key, value in model.state_dict().items())
    assert model.names == ("background", "a", "b")


def test_every_rc_block_is_merged_and_frozen(model):
    student = begin_step(model, ["c"]).train()
    blocks = rc_blocks(student)
    assert len(blocks) == 16 + 4
    frozen = {id(p) for block in blocks for p in block.old.parameters()}
    for name, parameter in student.named_parameters():
        assert parameter.requires_grad == (id(parameter) not in frozen), name
    assert student.arch.rc.old == "merged"
    assert student.arch.rc.frozen


def test_the_merged_branches_alone_are_the_old_network(model):
    student, x = begin_step(model, ["c"]), torch.randn(1, 3, 65, 65)
    for block in rc_blocks(student):
        block.mix.expected = block.mix.eta = lambda like: torch.ones(like.shape[1])
    with torch.no_grad():
        torch.testing.assert_close(student.eval()(x)[:, :3], model(x), rtol=1e-4, atol=1e-4)


def test_plain_start_changes_the_function_and_preserving_start_does_not(model):
    x = torch.randn(1, 3, 65, 65).double()
    model = model.double()
    with torch.no_grad():
        expected = model(x)
        carried = begin_step(model, ["c"]).eval()(x)[:, :3]
        preserved = begin_step(model, ["c"], preserve=True).eval()(x)[:, :3]
    assert (carried - expected).abs().max() > 1e-2
    torch.testing.assert_close(preserved, expected, rtol=1e-9, atol=1e-9)


def test_steps_can_follow_each_other_in_every_form(model):
    x = torch.randn(1, 3, 65, 65).double()
    for preserve in (False, True, False):
        model = begin_step(model, [f"c{len(model.names)}"], preserve=preserve)
        with torch.no_grad():
            before, after = model.double().eval()(x), fold(model)[0](x)
        assert (before - after).abs().max() / before.abs().max() < 1e-10
    assert model.names[-3:] == ("c3", "c4", "c5")


def test_the_architecture_rebuilds_every_form(model):
    for options in ({}, {"preserve": True}, {"merge": False}, {"freeze": False}):
        student = begin_step(model, ["c"], **options)
        twin = build(student.arch, student.classifier.steps)
        assert twin.state_dict().keys() == student.state_dict().keys()
        assert [p.requires_grad for p in twin.parameters()] == [p.requires_grad for p in student.parameters()]


def test_a_domain_step_adds_no_rows(model):
    assert begin_step(model, []).names == model.names


def test_a_network_without_rc_only_grows_its_classifier():
    model = build(small_arch(rc=None), [["background", "a"]])
    student = begin_step(model, ["b"], rows="balanced")
    assert student.arch == model.arch
    assert all(p.requires_grad for p in student.parameters())


def test_a_folded_network_cannot_begin_a_step(model):
    with pytest.raises(ConfigError, match="folded"):
        begin_step(fold(model)[0], ["c"])
