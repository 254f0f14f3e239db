import pytest
import torch
from networks import BACKBONES, at_step, small_arch
from torch import nn

from rcil.architecture import RC
from rcil.classify.network import HeadSpec, build_classifier, fold_classifier, plain_classifier_twin
from rcil.nn import build, classifier, convnorm, plain_twin, rc
from rcil.nn.fold import fold
from rcil.nn.norms import is_norm
from rcil.nn.rc import RCConv


@pytest.fixture
def nothing_folds(monkeypatch):
    """Whatever folds, merges or reads a norm raises."""

    def refuse(*_, **__):
        raise AssertionError("the twin must not use this")

    module = __import__("rcil.nn.fold", fromlist=["fold"])
    for name in ("fold", "fold_layers", "replace_modules"):
        monkeypatch.setattr(module, name, refuse)
    for kind, name in (
        (rc.RCConv, "fold"),
        (rc.RCConv, "merged"),
        (rc.RCConv, "__init__"),
        (convnorm.ConvNorm, "fold"),
        (convnorm.ConvNorm, "__init__"),
        (convnorm.ConvSum, "fold"),
        (classifier.IncrementalClassifier, "fold"),
    ):
        monkeypatch.setattr(kind, name, refuse)
    for name in ("kernel_of", "conv_like", "affine_of"):
        monkeypatch.setattr(convnorm, name, refuse)


def shapes(model):
    return [(key, value.shape, value.dtype) for key, value in model.state_dict().items()]


@pytest.mark.parametrize(
    ("backbone", "changes"),
    [*((name, {}) for name in BACKBONES), ("resnet18", {"stem_activation": False}), ("resnet18", {"output_stride": 8})],
)
def test_a_twin_is_built_without_anything_that_folds(backbone, changes, request):
    model = at_step(small_arch(backbone, **changes), 1)
    folded = fold(model)[0]
    request.getfixturevalue("nothing_folds")
    twin = plain_twin(model)
    assert shapes(twin) == shapes(folded)
    assert [type(part) for part in twin.modules()] == [type(part) for part in folded.modules()]
    assert not twin.training and not any(is_norm(part) or isinstance(part, RCConv) for part in twin.modules())
    assert twin.arch == folded.arch and twin.names == folded.names


@pytest.mark.parametrize("norm", ["batch", "abs"])
@pytest.mark.parametrize("head", [HeadSpec("linear"), HeadSpec("cosine", 3)], ids=lambda head: head.kind)
def test_so_is_that_of_a_classifier(head, norm, request):
    model = build_classifier(small_arch("resnet18", norm=norm), head, [["a", "b"], ["c"]]).eval()
    folded = fold_classifier(model)[0]
    request.getfixturevalue("nothing_folds")
    twin = plain_classifier_twin(model)
    assert shapes(twin) == shapes(folded)
    assert twin.arch == folded.arch and tuple(twin.names) == ("a", "b", "c")
    x = torch.randn(2, 3, 32, 32)
    assert twin(x).shape == (2, 3)


def test_geometry_is_that_of_the_folded_network():
    model = at_step(small_arch("efficientnet_lite0", output_stride=8), 1)
    convs = [
        [
            (type(c), c.stride, c.padding, c.dilation, c.groups, c.kernel_size)
            for c in network.modules()
            if isinstance(c, nn.Conv2d)
        ]
        for network in (fold(model)[0], plain_twin(model))
    ]
    assert convs[0] == convs[1]


def test_weights_of_the_folded_network_compute_the_same_in_the_twin():
    model = at_step(small_arch("resnet50"), 1)
    twin = plain_twin(model)
    twin.load_state_dict(fold(model)[0].state_dict())
    x = torch.randn(1, 3, 65, 49)
    with torch.no_grad():
        assert torch.equal(twin(x), fold(model)[0](x))


def test_a_folded_architecture_gives_convs_that_start_at_random():
    torch.manual_seed(0)
    built = build(small_arch("resnet18", rc=None, folded=True), [["background"], ["a"]])
    kernels = [c.weight for c in built.backbone.modules() if isinstance(c, nn.Conv2d)]
    assert all(kernel.std() > 0 for kernel in kernels)
    assert built.names == ("background", "a") and len(built.classifier.groups) == 1
    for parameter in ("backbone.stem.0.bias", "head.project.left.bias", "classifier.groups.0.bias"):
        assert not built.get_parameter(parameter).any()


@pytest.mark.parametrize("mix", ["fixed", "learnable"])
def test_mixes_are_merged_in_double_precision(mix):
    """A mix that is rounded to fp32 first shows in merged kernels of fp64."""
    model = build(small_arch("resnet18", rc=RC(mix=mix, old_weight=0.3)), [["background", "a"]]).double().eval()
    block = model.backbone.stages[0][0].conv1
    if mix == "learnable":
        nn.init.normal_(block.mix.logit)
    eta = torch.full((8,), 0.3, dtype=torch.float64) if mix == "fixed" else torch.sigmoid(block.mix.logit)
    parts = [convnorm.kernel_of(branch)[0] for branch in (block.old, block.new)]
    column = eta.view(-1, 1, 1, 1)
    torch.testing.assert_close(block.merged().weight, column * parts[0] + (1 - column) * parts[1], rtol=1e-15, atol=0)
