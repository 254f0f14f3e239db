import pytest
import torch
from networks import at_step, small_arch

from rcil.core.errors import ConfigError
from rcil.model.architecture import RC
from rcil.nn import RCConv, begin_step, build, fold
from rcil.nn.fold import replace_modules
from rcil.nn.step import add_branches
from rcil.nn.units.convnorm import ConvNorm


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


FORMS = {
    "none": ({}, {"absorb": True}),
    "after": ({"norm_after": True}, {}),
    "after, preserved": ({"norm_after": True}, {"preserve": True}),
    "late stages": ({"stages": ("stage4", "head")}, {}),
    "late stages, none": ({"stages": ("stage3", "head")}, {"absorb": True}),
}
"""Fields of RC, and options of the start of a step."""


@pytest.mark.parametrize(("rc", "how"), FORMS.values(), ids=FORMS)
@pytest.mark.parametrize("backbone", ["resnet18", "efficientnet_lite0"])
def test_other_forms_of_branches_survive_two_steps(backbone, rc, how):
    """Each form folds exactly, is rebuilt from its description, and merges what it computed."""
    model = at_step(small_arch(backbone, rc=rc), 0).double()
    x = torch.randn(1, 3, 65, 65, dtype=torch.float64)
    for step in range(2):
        before, model = model, begin_step(model, [f"c{step}"], **how)
        for block, was in zip(rc_blocks(model), rc_blocks(before), strict=True):
            torch.testing.assert_close(block.old.weight, was.mixed().weight, rtol=0, atol=0)
            assert isinstance(block.new, ConvNorm) == (rc == {"stages": ("stage4", "head")} and not how)
            torch.nn.init.normal_(block.anchor.weight, std=0.05)
        twin = build(model.arch, model.classifier.steps).double().eval()
        assert [p.requires_grad for p in twin.parameters()] == [p.requires_grad for p in model.parameters()]
        twin.load_state_dict(model.state_dict())
        with torch.no_grad():
            expected = model.eval()(x)
            assert torch.equal(twin(x), expected)
            folded = fold(model)[0]
            assert (folded(x) - expected).abs().max() / expected.abs().max() < 1e-10
            assert fold(folded)[1].layers == ()


def test_only_the_named_stages_have_branches():
    model = begin_step(at_step(small_arch("resnet50", rc={"stages": ["head", "stage3"]}), 0), ["c"])
    names = {name.rpartition(".")[0] for name, m in model.named_modules() if isinstance(m, RCConv)}
    assert names == {"head.paths", *(f"backbone.stages.2.{index}" for index in range(6))}
    assert model.arch.rc.stages == ("stage3", "head"), "in the order of the network"
    plain = model.backbone.stages[1][0].conv2
    assert isinstance(plain, ConvNorm) and all(p.requires_grad for p in plain.parameters())


@pytest.mark.parametrize("old_weight", [0.25, 0.5])
def test_without_norms_and_drop_path_two_branches_are_one_conv_with_another_learning_rate(old_weight):
    """An SGD step of eta W_o + (1 - eta) W_n moves this sum as (1 - eta)^2 of the learning rate moves one conv."""
    plain = at_step(small_arch("resnet18", rc=None, blocks=(1, 1, 1, 1)), 0).double()
    rc = RC(mix="fixed", old_weight=old_weight)
    student = begin_step(add_branches(plain, rc), ["c"], absorb=True).train()
    single = replace_modules(student, lambda name, part: part.fold() if isinstance(part, RCConv) else None).train()
    blocks = {name for name, part in student.named_modules() if isinstance(part, RCConv)}
    instead = {id(p) for name in blocks for p in single.get_submodule(name).parameters()}
    same = [p for p in single.parameters() if id(p) not in instead]
    slow = [p for p in single.parameters() if id(p) in instead]
    optimisers = [
        torch.optim.SGD([p for p in student.parameters() if p.requires_grad], lr=0.1),
        torch.optim.SGD([{"params": same}, {"params": slow, "lr": 0.1 * (1 - old_weight) ** 2}], lr=0.1),
    ]
    start = [p.detach().clone() for p in slow]
    x = torch.randn(2, 3, 65, 65, dtype=torch.float64)
    for _ in range(2):
        for model, optimiser in zip((student, single), optimisers, strict=True):
            optimiser.zero_grad()
            model(x).square().mean().backward()
            optimiser.step()
    assert all((p - was).abs().max() > 1e-9 for p, was in zip(slow, start, strict=True))
    for name, value in fold(single)[0].state_dict().items():
        torch.testing.assert_close(fold(student)[0].state_dict()[name], value, rtol=1e-9, atol=1e-11, msg=name)


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
