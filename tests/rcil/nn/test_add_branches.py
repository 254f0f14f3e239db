import pytest
import torch
from networks import at_step, small_arch

from rcil.core.errors import ConfigError
from rcil.model.architecture import RC
from rcil.nn import RCConv, begin_step, fold
from rcil.nn.step import add_branches


def plain(backbone="resnet18", norm="batch"):
    return at_step(small_arch(backbone, rc=None, norm=norm), 0)


@pytest.mark.parametrize("norm", ["batch", "abs"])
@pytest.mark.parametrize(("backbone", "blocks"), [("resnet18", 14), ("resnet50", 20), ("efficientnet_lite0", 20)])
def test_the_function_stays(backbone, blocks, norm):
    model = plain(backbone, norm)
    before = {key: value.clone() for key, value in model.state_dict().items()}
    branched = add_branches(model)
    assert sum(isinstance(m, RCConv) for m in branched.modules()) == blocks
    x = torch.randn(1, 3, 65, 65, generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        expected, given = model(x), branched(x)
    assert expected.std() > 1e-3
    assert (given - expected).abs().max() <= 1e-6 * expected.abs().max()
    assert model.arch.rc is None
    assert all(torch.equal(value, before[key]) for key, value in model.state_dict().items())


@pytest.mark.parametrize(
    "rc",
    [
        RC(mix="learnable"),
        RC(mix="fixed", old_weight=0.25),
        RC(norm_after=True),
        RC(mix="learnable", norm_after=True, stages=("stage2", "head")),
    ],
    ids=str,
)
def test_any_mix_gives_the_same(rc):
    model = plain()
    branched = add_branches(model, rc)
    assert branched.arch.rc == rc
    x = torch.randn(1, 3, 65, 65, generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        torch.testing.assert_close(branched(x), model(x), rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("rc", [RC(norm_after=True), RC(stages=("stage4",))], ids=str)
def test_a_step_of_a_deployed_network_starts_from_its_function(rc):
    """Also with one norm after the sum, which takes over the norm of the single conv."""
    model = plain("resnet18").double()
    student = begin_step(add_branches(model, rc), ["new"])
    x = torch.randn(2, 3, 65, 65, dtype=torch.float64)
    with torch.no_grad():
        torch.testing.assert_close(student(x)[:, 1:3], model(x)[:, 1:3], rtol=1e-9, atol=1e-9)
        for block in student.modules():
            if isinstance(block, RCConv):
                block.mix.train()  # whatever is drawn
        torch.testing.assert_close(student(x)[:, 1:3], model(x)[:, 1:3], rtol=1e-9, atol=1e-9)


def test_branches_are_tensors_of_their_own():
    branched = add_branches(plain())
    block = next(m for m in branched.modules() if isinstance(m, RCConv))
    assert torch.equal(block.old.conv.weight, block.new.conv.weight)
    block.new.conv.weight.data += 1
    assert not torch.equal(block.old.conv.weight, block.new.conv.weight)


def test_a_step_can_begin():
    model = plain()
    student = begin_step(add_branches(model), ["new"], rows="balanced")
    assert student.arch.rc.frozen
    assert student.names == (*model.names, "new")
    x = torch.randn(1, 3, 65, 65, generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        old, new = fold(model)[0](x), student(x)
    torch.testing.assert_close(new[:, 1:3], old[:, 1:3], rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("model", [at_step(small_arch(), 0), fold(plain())[0]], ids=["branched", "folded"])
def test_others_are_refused(model):
    with pytest.raises(ConfigError):
        add_branches(model)
