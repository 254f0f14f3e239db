import copy

import pytest
import torch
from networks import NORMS, randomise
from torch import nn

from rcil.model.architecture import RC
from rcil.nn.units.convnorm import ConvNorm, SameConv2d
from rcil.nn.units.norms import make_norm
from rcil.nn.units.rc import DropPathMix, RCConv, make_mix


def make_block(conv=None, *, norm="batch", rc=None, act=None, after=False, seed=0) -> RCConv:
    """A block with norms in its branches, or with one norm `after` their sum."""
    torch.manual_seed(seed)
    conv = conv or nn.Conv2d(4, 24, 3, padding=1, bias=False)
    other = copy.deepcopy(conv)
    other.reset_parameters()
    norms = [make_norm(norm, conv.out_channels) for _ in range(1 if after else 2)]
    branches = [conv, other] if after else [ConvNorm(c, n) for c, n in zip((conv, other), norms, strict=True)]
    mix = make_mix(rc or RC(), conv.out_channels)
    block = RCConv(*branches, mix, act, norm=norms[0] if after else None)
    for index, layer in enumerate(norms):
        randomise(layer, seed + index)
    return block.eval()


def relative(a, b):
    return ((a - b).abs().max() / b.abs().max()).item()


CONVS = [
    {"kernel_size": k, "stride": s, "dilation": d, "groups": g, "bias": b, "padding": p}
    for k, s, d, g, b, p in [
        (3, 1, 1, 1, False, 1),
        (3, 2, 1, 1, True, 1),
        (3, 1, 6, 1, False, 6),
        (3, 2, 2, 4, True, 2),
        (5, 2, 1, 8, False, 2),
        (1, 1, 1, 1, False, 0),
        (1, 2, 1, 2, True, 0),
        ((3, 5), (1, 2), (2, 1), 8, True, (0, 1)),
    ]
]


@pytest.mark.parametrize("options", CONVS, ids=lambda o: "-".join(str(v) for v in o.values()))
@pytest.mark.parametrize("norm", NORMS)
@pytest.mark.parametrize("after", [False, True], ids=["in branches", "after the sum"])
def test_fold_is_exact_for_any_geometry(options, norm, after):
    block = make_block(nn.Conv2d(8, 24, **options), norm=norm, act=nn.LeakyReLU(0.01), after=after).double()
    x = torch.randn(2, 8, 17, 19, dtype=torch.float64)
    folded = block.fold()
    assert relative(folded(x), block(x)) < 1e-12
    conv = folded[0]
    assert type(conv) is nn.Conv2d
    assert (conv.stride, conv.dilation, conv.groups) == (
        block.stride,
        block.dilation,
        options["groups"],
    )


def test_fold_of_a_depthwise_same_conv():
    block = make_block(SameConv2d(24, 24, 5, stride=2, groups=24, bias=False))
    x = torch.randn(1, 24, 10, 11)
    assert relative(block.fold()(x), block(x)) < 1e-5


@pytest.mark.parametrize("rc", [RC(), RC(mix="fixed", old_weight=0.9995), RC(mix="learnable")], ids=lambda rc: rc.mix)
def test_fold_has_the_weights_of_the_mix(rc):
    block = make_block(rc=rc).double()
    if rc.mix == "learnable":
        nn.init.normal_(block.mix.logit)
    x = torch.randn(2, 4, 9, 9, dtype=torch.float64)
    assert relative(block.fold()(x), block(x)) < 1e-12
    eta = {"drop_path": 0.5, "fixed": 0.9995}.get(rc.mix)
    if eta is not None:
        torch.testing.assert_close(block(x), eta * block.old(x) + (1 - eta) * block.new(x))


def test_fold_does_not_touch_the_block():
    block = make_block()
    before = copy.deepcopy(block.state_dict())
    block.fold()
    assert all(torch.equal(before[key], value) for key, value in block.state_dict().items())


def test_drop_path_draws_three_values_equally_often():
    torch.manual_seed(0)
    mix, anchor = DropPathMix(30_000), torch.zeros(1)
    eta = mix.train().eta(anchor)
    counts = [(eta == value).sum().item() for value in (0.0, 0.5, 1.0)]
    assert sum(counts) == 30_000
    assert all(abs(count - 10_000) < 400 for count in counts)  # 5 standard deviations
    assert not torch.equal(eta, mix.eta(anchor))
    assert torch.equal(mix.eval().eta(anchor), torch.full((30_000,), 0.5))


def test_drop_path_follows_the_official_thresholds():
    mix = DropPathMix(4, drop=0.33).train()
    mix.draw = lambda like: torch.tensor([0.329, 0.331, 0.659, 0.661])
    assert mix.eta(torch.zeros(1)).tolist() == [1.0, 0.0, 0.0, 0.5]


def test_one_draw_is_shared_by_the_batch():
    block = make_block()
    block.mix.train()
    x = torch.randn(1, 4, 7, 7).expand(3, 4, 7, 7)
    block.training = True  # branches stay in evaluation mode: only the draw could differ between samples
    out = block(x)
    assert torch.equal(out[0], out[1])
    assert torch.equal(out[0], out[2])


def test_evaluation_is_not_random():
    block, x = make_block(), torch.randn(2, 4, 7, 7)
    state = torch.get_rng_state()
    assert torch.equal(block(x), block(x))
    assert torch.equal(state, torch.get_rng_state())


def test_the_mean_of_many_draws_is_the_evaluation_output():
    block, x = make_block().double(), torch.randn(1, 4, 3, 3, dtype=torch.float64)
    expected = block(x)
    block.mix.train()
    torch.manual_seed(1)
    mean = sum(block(x) for _ in range(4000)) / 4000
    spread = (block.old(x) - block.new(x)).abs().amax()
    assert (mean - expected).abs().max() < spread * 0.41 / 4000**0.5 * 5


def test_learnable_eta_takes_gradient():
    block = make_block(rc=RC(mix="learnable")).train()
    block(torch.randn(2, 4, 7, 7)).square().sum().backward()
    assert block.mix.logit.grad.abs().sum() > 0


class TestNextStep:
    def test_the_old_branch_alone_computes_what_the_block_did(self):
        block, x = make_block().double(), torch.randn(2, 4, 9, 9, dtype=torch.float64)
        after = block.next_step()
        assert relative(after.old(x), block(x)) < 1e-12
        assert isinstance(after.old, nn.Conv2d)
        torch.testing.assert_close(after.new(x), block.new(x), rtol=0, atol=0)

    def test_freezing_survives_train(self):
        block = make_block().next_step().train()
        assert not any(p.requires_grad for p in block.old.parameters())
        assert all(p.requires_grad for p in block.new.parameters())
        assert not block.old.training
        assert block.new.training

    def test_a_frozen_branch_with_a_norm_keeps_its_statistics(self):
        block = make_block().next_step(merge=False).train()
        before = block.old.norm.running_mean.clone()
        block(torch.randn(2, 4, 9, 9) + 3)
        assert torch.equal(before, block.old.norm.running_mean)
        assert not torch.equal(before, block.new.norm.running_mean)

    def test_without_freezing_both_branches_train(self):
        block = make_block().next_step(freeze=False).train()
        block(torch.randn(2, 4, 9, 9)).square().sum().backward()
        assert block.old.weight.grad is not None

    def test_no_gradient_reaches_the_frozen_branch(self):
        block = make_block().next_step().train()
        block(torch.randn(2, 4, 9, 9)).square().sum().backward()
        assert block.old.weight.grad is None
        assert block.new.conv.weight.grad is not None

    def test_function_preserving_start_is_exact_in_training_too(self):
        block, x = make_block().double(), torch.randn(2, 4, 9, 9, dtype=torch.float64)
        after = block.next_step(preserve=True)
        assert relative(after.train()(x), block(x)) < 1e-12
        after.new.weight.data.zero_()
        assert after.old.weight.abs().sum() > 0, "the two copies must not share memory"

    def test_learned_eta_goes_into_the_merge_and_starts_anew(self):
        block, x = make_block(rc=RC(mix="learnable")).double(), torch.randn(1, 4, 9, 9, dtype=torch.float64)
        nn.init.normal_(block.mix.logit)
        after = block.next_step()
        assert relative(after.old(x), block(x)) < 1e-12
        assert after.mix.logit.abs().sum() == 0

    @pytest.mark.parametrize("options", CONVS, ids=lambda o: "-".join(str(v) for v in o.values()))
    @pytest.mark.parametrize("norm", NORMS)
    def test_a_branch_that_absorbs_its_norm_computes_the_same(self, options, norm):
        block = make_block(nn.Conv2d(8, 24, **options), norm=norm).double()
        after = block.next_step(absorb=True)
        x = torch.randn(2, 8, 17, 19, dtype=torch.float64)
        assert type(after.new) is nn.Conv2d and after.new.bias.requires_grad and after.new.weight.requires_grad
        assert relative(after.new(x), block.new(x)) < 1e-12
        assert relative(after.old(x), block(x)) < 1e-12
        assert relative(after.fold()(x), after(x)) < 1e-12
        again = after.next_step(absorb=True)
        assert relative(again.old(x), after(x)) < 1e-12
        assert torch.equal(again.new.weight, after.new.weight)
        assert isinstance(block.new, ConvNorm), "the block of the step before stays as it is"

    def test_a_branch_that_is_not_merged_keeps_its_norm(self):
        block, x = make_block().double(), torch.randn(2, 4, 9, 9, dtype=torch.float64)
        after = block.next_step(merge=False, absorb=True)
        assert isinstance(after.old, ConvNorm) and type(after.new) is nn.Conv2d
        assert relative(after(x), block(x)) < 1e-12


class TestNormAfterTheSum:
    @pytest.mark.parametrize("norm", NORMS)
    def test_it_normalises_the_sum(self, norm):
        block, x = make_block(norm=norm, after=True).train(), torch.randn(3, 4, 9, 9) + 1
        block.mix.eval()
        seen = torch.lerp(block.new(x), block.old(x), 0.5)
        expected = copy.deepcopy(block.norm)(seen.clone())
        assert relative(block(x), expected) < 1e-6
        assert not torch.equal(block.norm.running_mean, make_block(norm=norm, after=True).norm.running_mean)

    @pytest.mark.parametrize("options", CONVS, ids=lambda o: "-".join(str(v) for v in o.values()))
    def test_old_branch_and_norm_compute_together_what_the_block_did(self, options):
        block = make_block(nn.Conv2d(8, 24, **options), rc=RC(mix="learnable"), after=True).double()
        nn.init.normal_(block.mix.logit)
        x = torch.randn(2, 8, 17, 19, dtype=torch.float64)
        for _ in range(2):
            after = block.next_step()
            assert relative(after.norm(after.old(x)), block(x)) < 1e-12
            assert torch.equal(after.new.weight, block.new.weight)
            assert all(torch.equal(a, b) for a, b in zip(after.norm.buffers(), block.norm.buffers(), strict=True))
            nn.init.normal_(after.mix.logit)
            nn.init.normal_(after.new.weight)
            block = after

    def test_a_preserving_start_is_exact_for_every_draw_and_on_the_statistics_of_a_batch(self):
        block = make_block(after=True).double()
        x = torch.randn(2, 4, 9, 9, dtype=torch.float64)
        after = block.next_step(preserve=True)
        assert relative(after(x), block(x)) < 1e-12
        block.train().mix.eval()
        assert relative(after.train()(x), block(x)) < 1e-12

    def test_the_norm_is_trained_and_the_old_conv_is_not(self):
        block = make_block(after=True).next_step().train()
        block(torch.randn(2, 4, 9, 9)).square().sum().backward()
        assert block.old.weight.grad is None and not block.old.training
        assert block.new.weight.grad.abs().sum() > 0 and block.norm.weight.grad.abs().sum() > 0
        assert block.norm.training
