"""Closed-form fusion: every folded conv solves the regression that a naive reference writes out, patch by patch."""

import copy

import pytest
import torch
from networks import at_step, small_arch
from odd_networks import NAMES
from torch import nn
from torch.nn import functional as F

from rcil.core.allowed_imports import allowing
from rcil.core.errors import ConfigError
from rcil.model.architecture import RC
from rcil.nn import RCConv, begin_step, fold, regmean
from rcil.nn.architectures.depthwise import DepthwiseConv2d
from rcil.nn.attached.attach import attach_network
from rcil.nn.attached.builders import build_module
from rcil.nn.fuse import fuse
from rcil.nn.regmean import Autocorrelation, LayerFusion, Layout, check_layers, measure_fusion, units_of
from rcil.nn.step import add_branches
from rcil.nn.units.convnorm import ConvNorm, SameConv2d
from rcil.nn.units.norms import is_norm

CONVS = {
    "full": lambda: nn.Conv2d(4, 6, 3, padding=1),
    "strided and dilated": lambda: nn.Conv2d(4, 6, 3, stride=2, padding=2, dilation=2),
    "pointwise, strided": lambda: nn.Conv2d(4, 6, 1, stride=2),
    "reflecting": lambda: nn.Conv2d(4, 6, (3, 1), padding=(1, 0), padding_mode="reflect"),
    "groups": lambda: nn.Conv2d(4, 6, 3, groups=2),
    "depthwise": lambda: DepthwiseConv2d(4, 5, 2),
    "depthwise, more outputs": lambda: nn.Conv2d(4, 8, 3, padding=1, groups=4),
    "padded by name": lambda: nn.Conv2d(4, 6, 3, padding="same"),
    "same": lambda: SameConv2d(4, 6, 3, stride=2),
}


@pytest.fixture(autouse=True)
def all_pixels(monkeypatch):
    """Small maps have few pixels; none is left out."""
    monkeypatch.setattr(regmean, "MAX_PIXELS", 10**6)


def patches_of(conv, x):
    """What every output reads, channel by channel: the output of a kernel that is 1 for one number and else 0."""
    one, columns = copy.deepcopy(conv), []
    with torch.no_grad():
        one.bias.zero_()
        for index in range(one.weight[0].numel()):
            one.weight.zero_()
            one.weight.flatten(1)[:, index] = 1.0
            columns.append(one(x).movedim(1, 0).flatten(1))
    return torch.stack(columns, dim=2)


@pytest.mark.parametrize("name", CONVS)
def test_the_kernel_is_the_least_squares_solution(name, monkeypatch):
    """Without shrinking: no other kernel is closer to the old outputs on old inputs and to the new on new ones."""
    monkeypatch.setattr(regmean, "OFF_DIAGONAL", 1.0)
    monkeypatch.setattr(regmean, "RIDGE", 1e-12)
    torch.manual_seed(0)
    old, new = (CONVS[name]().double() for _ in range(2))
    xs = [torch.randn(2, 4, 7, 6, dtype=torch.float64) + shift for shift in (0.0, 1.0)]
    layout = Layout.of(ConvNorm(new, nn.Identity()))
    sides = [Autocorrelation(layout) for _ in xs]
    for side, x in zip(sides, xs, strict=True):
        side.add(x[:1])
        side.add(x[1:])
    kernels = [(conv.weight.detach(), conv.bias.detach()) for conv in (old, new)]
    weight, bias = LayerFusion(layout, *sides)(*kernels, 0.5)
    inputs = [patches_of(new, x) for x in xs]
    outputs = [conv(x).detach().movedim(1, 0).flatten(1) for conv, x in zip((old, new), xs, strict=True)]
    for output in range(new.out_channels):
        read = torch.cat([side[output] for side in inputs])
        read = torch.cat((read, torch.ones(len(read), 1)), dim=1)
        wanted = torch.cat([side[output] for side in outputs])
        best = torch.linalg.lstsq(read, wanted[:, None]).solution[:, 0]
        torch.testing.assert_close(weight[output].flatten(), best[:-1], rtol=1e-6, atol=1e-7)
        torch.testing.assert_close(bias[output], best[-1], rtol=1e-6, atol=1e-7)


def moved(old, amount=0.05):
    """A next step whose weights are somewhere else; no norm is switched off."""
    student = begin_step(old, ["new"], rows="balanced")
    generator = torch.Generator().manual_seed(5)
    with torch.no_grad():
        for parameter in student.parameters():
            parameter.add_(amount * torch.randn(parameter.shape, generator=generator, dtype=parameter.dtype))
        for module in student.modules():
            if is_norm(module):
                module.weight.copy_(module.weight.where(module.weight.abs() > 0.1, 0.1))
    return student.eval()


def naive(fields, share):
    """The formula, with every matrix written out; fields are kernel, bias and inputs [P, D] of old and new."""
    sums = 0.0, 0.0
    for (weight, bias, read), part in zip(fields, (1 - share, share), strict=True):
        rows = torch.cat((weight.flatten(1), bias[:, None]), dim=1)
        read = torch.cat((read, torch.ones(len(read), 1)), dim=1)
        products = read.T @ read / len(read)
        diagonal = products.diagonal()
        products = 0.9 * products + (0.1 * diagonal + 1e-6 * diagonal.mean()).diag()
        sums = sums[0] + part * rows @ products, sums[1] + part * products
    fused = sums[0] @ torch.linalg.inv(sums[1])
    return fused[:, :-1], fused[:, -1]


def folded_reads(model, images):
    """The folded network, and the inputs [P, D] of all of its full convs, by F.unfold."""
    folded, reads = fold(model)[0], {}
    for name, conv in folded.named_modules():
        if isinstance(conv, nn.Conv2d) and not name.startswith("classifier"):

            def keep(conv, inputs, name=name):
                patches = F.unfold(inputs[0], conv.kernel_size, conv.dilation, conv.padding, conv.stride)
                reads.setdefault(name, []).append(patches.transpose(1, 2).flatten(0, 1))

            conv.register_forward_pre_hook(keep)
    with torch.no_grad():
        for image in images:
            folded(image)
    return dict(folded.named_modules()), {name: torch.cat(parts) for name, parts in reads.items()}


@pytest.mark.parametrize("after", [False, True], ids=["norms in the branches", "norm after the sum"])
def test_every_layer_of_a_network(after):
    old = at_step(small_arch("resnet18", width=4, head_width=8, rc=RC(norm_after=after)), 1).double()
    for module in old.modules():  # `moved` switches no norm off either
        if is_norm(module):
            torch.nn.init.uniform_(module.weight, 0.5, 1.5)
            torch.nn.init.uniform_(module.running_var, 0.5, 1.5)
    new = moved(old)
    torch.manual_seed(0)
    images = [torch.randn(1, 3, 64, 96, dtype=torch.float64), torch.randn(2, 3, 64, 64, dtype=torch.float64)]
    fused = fuse(new, old, 0.3, measure_fusion(new, old, images))
    (was, before), (now, after) = (folded_reads(model, images) for model in (old, new))
    got = dict(fold(fused)[0].named_modules())
    assert len(before) > 15 and before.keys() == after.keys()
    for name in before.keys() - {"head.project.left", "head.project.right"}:
        fields = [(m[name].weight, m[name].bias, read[name]) for m, read in ((was, before), (now, after))]
        weight, bias = naive(fields, 0.3)
        torch.testing.assert_close(got[name].weight.flatten(1), weight, msg=name)
        torch.testing.assert_close(got[name].bias, bias, msg=name)
        if name.startswith("backbone.stem"):  # both read the same: one share is best
            torch.testing.assert_close(weight, torch.lerp(*(m[name].weight.flatten(1) for m in (was, now)), 0.3))
        else:
            assert (weight - torch.lerp(fields[0][0].flatten(1), fields[1][0].flatten(1), 0.3)).abs().max() > 1e-4
    fields = []
    for modules, read in ((was, before), (now, after)):
        left, right = (f"head.project.{side}" for side in ("left", "right"))
        pooled = torch.cat([read[right][:1].expand(24, -1), read[right][1:].repeat_interleave(16, dim=0)])
        both = torch.cat((modules[left].weight, modules[right].weight), dim=1)
        fields.append((both, modules[left].bias, torch.cat((read[left], pooled), dim=1)))
    weight, bias = naive(fields, 0.3)
    found = torch.cat((got["head.project.left"].weight, got["head.project.right"].weight), dim=1)
    torch.testing.assert_close(found.flatten(1), weight)
    torch.testing.assert_close(got["head.project.left"].bias, bias)


@pytest.mark.parametrize(("share", "like"), [(0.0, "old"), (1.0, "new")])
def test_the_ends_are_both_networks(share, like):
    old = at_step(small_arch("efficientnet_lite0"), 0).double()
    new = moved(old)
    images = [torch.randn(1, 3, 64, 64, dtype=torch.float64)]
    fused = fuse(new, old, share, measure_fusion(new, old, images))
    source, got = (fold(model)[0].state_dict() for model in ({"old": old, "new": new}[like], fused))
    for name, value in got.items():
        if not name.startswith("classifier"):
            torch.testing.assert_close(value, source[name], rtol=1e-5, atol=1e-6, msg=name)


def test_without_images_weights_are_interpolated():
    old = at_step(small_arch("resnet18"), 1).double()
    new = moved(old)
    got, expected = (
        fold(model)[0].state_dict()
        for model in (fuse(new, old, 0.3, measure_fusion(new, old, [])), fuse(new, old, 0.3))
    )
    for name, value in got.items():
        torch.testing.assert_close(value, expected[name], msg=name)


def test_taps_of_large_kernels_are_fused_apart(monkeypatch):
    """By hand: every tap as a 1x1 conv with a ninth of the bias, over the channels of all pixels."""
    monkeypatch.setattr(regmean, "MAX_INPUTS", 20)
    torch.manual_seed(0)
    old, new = (nn.Conv2d(4, 6, 3, stride=2, padding=1).double() for _ in range(2))
    layout = Layout.of(ConvNorm(new, nn.Identity()))
    assert layout.apart
    xs = [torch.rand(2, 4, 7, 5, dtype=torch.float64) for _ in range(2)]
    sides = [Autocorrelation(layout) for _ in xs]
    for side, x in zip(sides, xs, strict=True):
        side.add(x)
    weight, bias = LayerFusion(layout, *sides)(*((c.weight.detach(), c.bias.detach()) for c in (old, new)), 0.4)
    total = torch.zeros(6, dtype=torch.float64)
    for row in range(3):
        for column in range(3):
            fields = [
                (conv.weight.detach()[:, :, row, column], conv.bias.detach() / 9, x.movedim(1, -1).flatten(0, 2))
                for conv, x in zip((old, new), xs, strict=True)
            ]
            kernel, part = naive(fields, 0.4)
            torch.testing.assert_close(weight[:, :, row, column], kernel)
            total += part
    torch.testing.assert_close(bias, total)


def test_a_layer_without_a_bias_gets_none():
    torch.manual_seed(0)
    old, new = (nn.Conv2d(4, 6, 1, bias=False).double() for _ in range(2))
    layout = Layout.of(ConvNorm(new, nn.Identity()))
    fusion = LayerFusion(layout, Autocorrelation(layout), Autocorrelation(layout))
    xs = [torch.rand(2, 4, 7, 5, dtype=torch.float64) for _ in range(2)]
    fusion.old.add(xs[0])
    fusion.new.add(xs[1])
    none = torch.zeros(6, dtype=torch.float64)
    weight, bias = fusion((old.weight.detach(), none), (new.weight.detach(), none), 0.5, shifts=False)
    products = [x.movedim(1, -1).flatten(0, 2) for x in xs]
    products = [x.T @ x / len(x) for x in products]
    products = [0.9 * c + (0.1 * c.diagonal() + 1e-6 * c.diagonal().mean()).diag() for c in products]
    wanted = sum(conv.weight.detach().flatten(1) @ c for conv, c in zip((old, new), products, strict=True))
    torch.testing.assert_close(weight.flatten(1), wanted @ torch.linalg.inv(sum(products)))
    assert not bias.any()


@pytest.mark.parametrize("options", [("Plain", {}), ("Plain", {"norm": "none"}), ("Summed", {}), ("Shared", {})])
def test_attached_networks(options):
    """Of every kind of unit and without some norms; both ends are right, and one layer is what it should be."""
    name, args = options
    with allowing(["odd_networks"]):
        torch.manual_seed(0)
        net = build_module(f"odd_networks:{name}", {"classes": 3, **args})
        model = attach_network(net, f"odd_networks:{name}", {"classes": 3, **args}, NAMES).double().eval()
        old = add_branches(model) if name == "Plain" else model
        new = moved(add_branches(model))
        images = [torch.randn(1, 3, 32, 48, dtype=torch.float64)]
        closed = measure_fusion(new, old, images)
        for share, source in ((0.0, old), (1.0, new)):
            expected, got = (fold(each)[0].state_dict() for each in (source, fuse(new, old, share, closed)))
            for key, value in got.items():
                if new.part_of(key) != "classifier" and ".head" not in key and value.is_floating_point():
                    torch.testing.assert_close(value, expected[key], rtol=1e-5, atol=1e-5, msg=key)
        if name == "Plain":
            (was, before), (now, after) = (plain_reads(each, "net.down.0", images) for each in (old, new))
            got = dict(fold(fuse(new, old, 0.3, closed))[0].named_modules())["net.down.0"]
            weight, bias = naive([(was.weight, was.bias, before), (now.weight, now.bias, after)], 0.3)
            torch.testing.assert_close(got.weight.flatten(1), weight)
            torch.testing.assert_close(got.bias, bias)


def plain_reads(model, name, images):
    """A conv of the folded network, and its inputs [P, D]."""
    folded, reads = fold(model)[0], []
    conv = dict(folded.named_modules())[name]
    conv.register_forward_pre_hook(lambda _, inputs: reads.append(inputs[0]))
    with torch.no_grad():
        for image in images:
            folded(image)
    patches = [F.unfold(x, conv.kernel_size, conv.dilation, conv.padding, conv.stride) for x in reads]
    return conv, torch.cat([part.transpose(1, 2).flatten(0, 1) for part in patches])


class Odd(nn.Conv2d):
    """Linear in its kernel, but it does not treat its channels alike."""

    def forward(self, x):
        return super().forward(x * torch.arange(1.0, x.shape[1] + 1).to(x).view(1, -1, 1, 1))


class Padded(nn.Conv2d):
    """Pads by itself, as some libraries do."""

    def forward(self, x):
        return super().forward(F.pad(x, (0, 1, 0, 1)))


def test_convs_of_other_libraries_are_measured_or_refused():
    with allowing(["odd_networks"]):
        model = attach_network(build_module("odd_networks:Plain", {}), "odd_networks:Plain", {}, NAMES)
    unit = dict(units_of(model))["net.down.0"]
    check_layers(model)
    unit.anchor.__class__ = Padded
    check_layers(model)
    unit.anchor.__class__ = Odd
    with pytest.raises(ConfigError, match=r"net\.down\.0 is a Odd.*\nSet fuse to true"):
        check_layers(model)


def test_branches_are_no_units_of_their_own():
    model = at_step(small_arch("resnet18"), 1)
    names = [name for name, _ in units_of(model)]
    assert len(names) == len(set(names)) and not any(name.endswith((".old", ".new")) for name in names)
    assert sum(isinstance(unit, RCConv) for _, unit in units_of(model)) > 5
