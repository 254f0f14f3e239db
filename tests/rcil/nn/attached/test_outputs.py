"""Which map of the output is the logits, how rows add up to it, and what has a row per class beside the classifier."""

import math

import pytest
import torch
from networks import randomise

from rcil.core.allowed_imports import allowing
from rcil.core.errors import ConfigError
from rcil.nn import begin_step
from rcil.nn.attached.attach import attach_network, default_names
from rcil.nn.attached.builders import build_module, with_classes
from rcil.nn.attached.restore import restore
from rcil.nn.step import add_branches

NAMES = ["background", "ball", "cone"]


@pytest.fixture(autouse=True)
def allowed():
    with allowing(["odd_outputs", "odd_networks"]):
        yield


def attached(name, args=None, **options):
    torch.manual_seed(0)
    args = {"classes": 3} if args is None else args
    net = build_module(f"odd_outputs:{name}", args)
    for part in net.modules():
        if isinstance(part, torch.nn.BatchNorm2d):
            randomise(part)
    return attach_network(net, f"odd_outputs:{name}", args, NAMES, **options).double()


def image():
    return torch.randn(2, 3, 64, 72, generator=torch.Generator().manual_seed(2), dtype=torch.float64)


@torch.no_grad()
def error(a, b):
    return float((a - b).abs().max() / (a.max() - a.min()))


@pytest.mark.parametrize(
    ("name", "scales"), [("Small", ()), ("Scaled", (0.25,)), ("Mixed", (0.333333, -0.5)), ("OwnRows", ())]
)
class TestScales:
    @torch.no_grad()
    def test_rows_give_the_logits(self, name, scales):
        network = attached(name)
        assert network.arch.scales == pytest.approx(scales)
        maps = network(image(), maps="before")
        weight, bias = network.rows.rows()
        found = torch.nn.functional.conv2d(network.rows.features(maps.inputs), weight, bias)
        assert error(maps.logits_small, found) < 1e-5
        network.rows.set_rows(weight * 2, bias * 2)
        assert error(2 * maps.logits_small, network(image(), maps="before").logits_small) < 1e-5

    @torch.no_grad()
    def test_a_balanced_start_keeps_the_probabilities(self, name, scales):
        network = attached(name)
        before = network(image()).softmax(dim=1)
        grown = begin_step(add_branches(network), ["pole"], rows="balanced").eval()(image())
        assert grown[:, 0] == pytest.approx(grown[:, 3], abs=1e-6)
        after = grown.softmax(dim=1)
        assert after[:, 1:3] == pytest.approx(before[:, 1:3], abs=1e-5)
        assert after[:, 0] + after[:, 3] == pytest.approx(before[:, 0], abs=1e-5)
        assert math.isclose(float(after.sum()), before.shape[0] * 64 * 72)


class TestChoice:
    def test_an_auxiliary_head_may_come_first(self):
        arch = attached("MainLast").arch
        assert (arch.output, arch.classifier, arch.auxiliary) == (1, ("rows",), ("early",))

    def test_the_classifier_chooses_the_output(self):
        arch = attached("MainLast", classifier="early").arch
        assert (arch.output, arch.classifier, arch.auxiliary) == (0, ("early",), ("rows",))

    def test_a_classifier_that_does_not_make_the_logits(self):
        with pytest.raises(ConfigError, match=r"'stem\.0' cannot be the classifier: it has 8 rows and not 3"):
            attached("MainLast", classifier="stem.0")

    @torch.no_grad()
    def test_training_may_return_more(self):
        network = attached("MainAlone")
        assert (network.arch.output, network.arch.training_output) == (None, 1)
        expected = network.train().net(image())[1]
        assert error(expected, network(image(), maps="before").logits_small) < 1e-12

    def test_a_usual_key(self):
        arch = attached("ManyTasks").arch
        assert (arch.output, arch.classifier, arch.auxiliary) == ("seg", ("heads.seg",), ())
        assert default_names(build_module("odd_outputs:ManyTasks", {"classes": 5}))[-1] == "class_4"

    def test_another_key(self):
        assert attached("ManyTasks", {}, classifier="heads.normals").arch.output == "normals"


class TestRowsBeside:
    def test_a_linear_auxiliary_head_grows(self):
        network = attached("LinearBeside")
        assert network.arch.auxiliary == ("whole",)
        student = begin_step(add_branches(network), ["pole", "sign"])
        plain = restore(student)
        build_module("odd_outputs:LinearBeside", with_classes(network.arch, 5)).load_state_dict(plain.state_dict())
        assert torch.equal(plain.whole.weight[4], network.net.whole.weight[0])

    @torch.no_grad()
    def test_context_from_auxiliary_logits(self):
        network = attached("Regions")
        assert (network.arch.output, network.arch.classifier, network.arch.auxiliary) == (1, ("rows",), ("early",))
        student = begin_step(add_branches(network), ["pole"]).eval()
        assert all(p.requires_grad for p in student.net.early.parameters())
        assert error(student(image()), student._full(restore(student)(image())[1], image())) < 1e-10
        assert 0 < error(network(image()), student(image())[:, :3]) < 0.1

    def test_the_number_of_classes_may_be_in_a_list(self):
        arch = attached("from_list", {"heads": [{"classes": 8}, {"classes": 3}]}).arch
        assert arch.classes_arg == ("heads", "1", "classes")
        assert with_classes(arch, 5) == {"heads": [{"classes": 8}, {"classes": 5}]}


@pytest.mark.parametrize(
    ("name", "options", "said"),
    [
        ("LearnedScale", {}, "the operation div in the forward function"),
        ("Viewed", {}, "the output of the conv 'rows' is rearranged by view"),
        ("BiasBeside", {}, "'bias' has one entry per class and belongs to a BiasBeside"),
        ("ActiveRows", {}, r"odd_outputs\.Conv, which does more than nn\.Conv2d"),
        ("Activated", {"classifier": "rows"}, "do not follow the rows of 'rows'"),
        ("Competing", {}, "with one class more, the logits of the others change by"),
    ],
)
def test_refusals(name, options, said):
    with pytest.raises(ConfigError, match=said):
        attached(name, **options)
