import pytest
import torch
from networks import BACKBONES, HEADS, NORMS, at_step, small_arch

from rcil.core.errors import ConfigError
from rcil.model.architecture import RC
from rcil.nn import begin_step, fold, unfold
from rcil.nn.recalibrate_norms import recalibrate_norms
from rcil.nn.step import add_branches
from rcil.nn.unfold import Moments


def images(count=3, size=(33, 49), seed=1):
    generator = torch.Generator().manual_seed(seed)
    return [torch.randn(2, 3, *size, generator=generator, dtype=torch.float64) for _ in range(count)]


def deployed(backbone="resnet18", **changes):
    return fold(at_step(small_arch(backbone, **changes), 1).double())[0]


@pytest.fixture(scope="module")
def folded():
    return deployed()


def assert_same(model, expected, x):
    """The rows of the old classes, to 1e-10 of the largest logit."""
    with torch.no_grad():
        before, after = expected(x), model.eval()(x)
    assert before.std() > 1e-3
    assert (after[:, : before.shape[1]] - before).abs().max() < 1e-10 * before.abs().max()


@pytest.mark.parametrize("norm", NORMS)
@pytest.mark.parametrize("head", HEADS)
@pytest.mark.parametrize("backbone", BACKBONES)
def test_the_function_stays_through_the_start_of_a_step(backbone, head, norm):
    model, (x, *fitted) = deployed(backbone, head=head, norm=norm), images(2)
    before = {key: value.clone() for key, value in model.state_dict().items()}
    plain = unfold(model, fitted)
    assert not plain.arch.folded and plain.arch.rc is None and plain.names == model.names
    assert_same(plain, model, x)
    assert_same(begin_step(add_branches(plain), ["new"], rows="background"), model, x)
    assert_same(begin_step(add_branches(plain), ["new"], rows="background", preserve=True), model, x)
    again = fold(plain)[0].state_dict()
    assert again.keys() == before.keys()
    for key, value in model.state_dict().items():
        assert torch.equal(value, before[key]), "the folded network does not change"
        torch.testing.assert_close(again[key], value, rtol=1e-12, atol=1e-12, msg=key)


@pytest.mark.parametrize("kind", NORMS)
@pytest.mark.parametrize("changes", [{"stem_activation": False}, {"pool_window": 2}, {"output_stride": 8}], ids=str)
def test_every_option_and_kind_of_norm(changes, kind):
    """`fold` describes its result with batch norm; other kinds are possible all the same."""
    model, (x, *fitted) = deployed(**changes), images(2)
    model.arch = model.arch.replace(norm=kind)
    plain = unfold(model, fitted)
    assert plain.arch == small_arch(**changes, norm=kind, rc=None)
    assert_same(plain, model, x)
    assert_same(begin_step(add_branches(plain, RC(mix="learnable")), ["new"], rows="background"), model, x)


@pytest.mark.parametrize("rc", [RC(norm_after=True), RC(norm_after=True, stages=("stage3",))], ids=str)
def test_one_norm_after_the_sum_takes_over_the_fitted_norm(rc):
    model, (x, *fitted) = deployed(), images(2)
    student = begin_step(add_branches(unfold(model, fitted), rc), ["new"], rows="background")
    assert_same(student, model, x)
    assert student.arch.rc.norm_after and student.arch.rc.stages == rc.stages


def test_single_precision_rounds_only(folded):
    x, *fitted = (batch.float() for batch in images())
    single = fold(at_step(small_arch(), 1))[0]
    with torch.no_grad():
        torch.testing.assert_close(unfold(single, fitted)(x), single(x), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("backbone", ["resnet50", "efficientnet_lite0"])
@pytest.mark.parametrize("head", HEADS)
def test_training_mode_computes_the_same_on_the_same_images(backbone, head):
    """Batch statistics are the fitted ones, layer by layer, so that even the outputs agree."""
    model, (x,) = deployed(backbone, head=head), images(1)
    plain = unfold(model, [x[:1], x[1:]])
    before = {key: value.clone() for key, value in plain.state_dict().items()}
    with torch.no_grad():
        torch.testing.assert_close(plain.train()(x), model(x), rtol=1e-6, atol=1e-6)
    recalibrate_norms(plain, [x])
    for key, value in plain.state_dict().items():
        if key.endswith("running_mean"):
            torch.testing.assert_close(value, before[key], rtol=1e-6, atol=1e-6, msg=key)
        if key.endswith("running_var") and "pool" not in key:  # torch stores n / (n - 1) of it, here 2 for two pixels
            torch.testing.assert_close(value, before[key], rtol=0.05, atol=1e-6, msg=key)


def test_moments_of_batches_are_those_of_all_images():
    maps = 100 + torch.randn(7, 4, 5, 3, dtype=torch.float64)
    moments = Moments()
    for part in maps.split([1, 4, 2]):
        moments.add(part)
    torch.testing.assert_close(moments.mean, maps.mean((0, 2, 3)), rtol=1e-12, atol=0)
    torch.testing.assert_close(moments.var, maps.var((0, 2, 3), correction=0), rtol=1e-9, atol=0)


def test_the_unfolded_network_learns(folded):
    student = begin_step(add_branches(unfold(folded, images(1))), ["new"]).train()
    student(images(1)[0]).square().mean().backward()
    assert all(p.grad is not None and p.grad.abs().sum() > 0 for p in student.parameters() if p.requires_grad)


def test_what_cannot_be_unfolded(folded):
    with pytest.raises(ConfigError, match="not folded"):
        unfold(at_step(small_arch(), 0), images())
    with pytest.raises(ConfigError, match="without images"):
        unfold(folded, [])
