"""Attaching keeps the function and finds convs, norms, classifier and maps; what cannot work is refused by name."""

import odd_networks
import pytest
import torch
from networks import randomise
from odd_networks import NAMES

from rcil.core.allowed_imports import allowing
from rcil.core.errors import ConfigError, MissingDependencyError
from rcil.model.architecture import RC
from rcil.nn import begin_step, fold, unfold
from rcil.nn.attached.attach import attach_network, default_names
from rcil.nn.attached.builders import build_module, with_classes
from rcil.nn.attached.outputs import pick
from rcil.nn.attached.restore import restore
from rcil.nn.build import build_any
from rcil.nn.freeze import freeze_stages
from rcil.nn.fuse import fuse
from rcil.nn.step import add_branches
from rcil.nn.units.rc import RCConv

GOOD = [
    ("Plain", {}),
    ("Plain", {"norm": "group"}),
    ("Plain", {"norm": "none"}),
    ("Plain", {"norm": "plain"}),
    ("Plain", {"bias": False}),
    ("Plain", {"auxiliary": True}),
    ("PreActivation", {}),
    ("Shared", {}),
    ("Summed", {}),
    ("Branching", {}),
    ("Renamed", {}),
    ("Listed", {}),
    ("Chatty", {}),
    ("Named", {}),
    ("Recorded", {}),
    ("Circular", {}),
    ("Recomputed", {}),
]


@pytest.fixture(autouse=True)
def allowed():
    with allowing(["odd_networks"]):
        yield


def build_odd(name, args=None):
    torch.manual_seed(0)
    net = build_module(f"odd_networks:{name}", {"classes": 3, **(args or {})})
    for part in net.modules():
        if isinstance(part, torch.nn.BatchNorm2d) and part.affine:
            randomise(part)
    return net


def attached(name, args=None, **options):
    net = build_odd(name, args)
    return net, attach_network(net, f"odd_networks:{name}", {"classes": 3, **(args or {})}, NAMES, **options)


def trained(network, steps=(["forklift"], ["pole", "sign"])):
    """Two steps later, with changed weights."""
    generator = torch.Generator().manual_seed(1)
    network = add_branches(network)
    for names in steps:
        network = begin_step(network, names, rows="balanced")
        with torch.no_grad():
            for parameter in network.parameters():
                if parameter.requires_grad:
                    parameter += 0.05 * torch.randn(parameter.shape, generator=generator)
    return network.eval()


def image(height=72, width=88, dtype=torch.float32):
    return torch.randn(2, 3, height, width, generator=torch.Generator().manual_seed(2), dtype=dtype)


@torch.no_grad()
def error(a, b):
    return float((a - b).abs().max() / (a.max() - a.min()))


@pytest.mark.parametrize(("name", "args"), GOOD)
class TestEveryNetwork:
    @torch.no_grad()
    def test_the_function_is_kept(self, name, args):
        net, network = attached(name, args)
        x = image()
        expected = network._full(pick(net(x), network.arch.output, 3), x)
        assert error(expected, network(x)) < 1e-6
        assert error(expected, add_branches(network).eval()(x)) < 1e-6

    @torch.no_grad()
    def test_both_forms_of_folding_equal_both_branches(self, name, args):
        _, network = attached(name, args)
        student = trained(network).double()
        x = image(dtype=torch.float64)
        expected = student(x)
        folded, report = fold(student)
        assert report.count("rc") > 0
        plain = restore(student)
        again = student._full(pick(plain(x), network.arch.output, 6), x)
        assert error(expected, folded(x)) < 1e-10
        assert error(expected, again) < 1e-10

    def test_the_state_dict_loads_into_the_builder_with_more_classes(self, name, args):
        net, network = attached(name, args)
        plain = restore(trained(network))
        bigger = build_module(f"odd_networks:{name}", with_classes(network.arch, 6))
        bigger.load_state_dict(plain.state_dict())
        assert type(plain) is type(net)

    @torch.no_grad()
    def test_rows_and_features_give_the_logits(self, name, args):
        student = trained(attached(name, args)[1]).double()
        maps = student(image(dtype=torch.float64), maps="before")
        weight, bias = student.rows.rows()
        found = torch.nn.functional.conv2d(student.rows.features(maps.inputs), weight, bias)
        if found.shape == maps.logits_small.shape:
            assert error(maps.logits_small, found) < 1e-12
        student.rows.set_rows(weight * 2, bias * 2)
        assert error(2 * maps.logits_small, student(image(dtype=torch.float64), maps="after").logits_small) < 1e-12

    def test_gradients_reach_every_trained_parameter(self, name, args):
        network = trained(attached(name, args)[1]).train()
        network(image(), maps="before").logits.square().mean().backward()
        without = [key for key, p in network.named_parameters() if p.requires_grad and p.grad is None]
        assert without == []

    @torch.no_grad()
    def test_unfolding_keeps_the_function(self, name, args):
        folded = fold(trained(attached(name, args)[1]).double())[0]
        plain = unfold(folded, [image(dtype=torch.float64)])
        x = image(dtype=torch.float64)
        assert error(folded(x), plain(x)) < 1e-10


class TestWhatIsFound:
    def test_pairs_and_branches(self):
        units = {unit.conv: unit for unit in attached("Plain")[1].arch.units}
        assert {name: unit.norm for name, unit in units.items()} == {
            "stem.0": "stem.1",
            "down.0": "down.1",
            "wide.0": "wide.1",
            "fused.0": "fused.1",
            "point.0": "point.1",
        }
        assert [name for name, unit in units.items() if unit.rc] == ["down.0", "wide.0", "fused.0"]

    @pytest.mark.parametrize("norm", ["group", "none", "plain"])
    def test_other_norms_stay_behind_a_branch_without_norm(self, norm):
        units = {unit.conv: unit.norm for unit in attached("Plain", {"norm": norm})[1].arch.units if unit.rc}
        assert units == {"down.0": None, "wide.0": None, "fused.0": "fused.1"}

    def test_shared_modules_are_left_alone(self):
        assert [unit.conv for unit in attached("Shared")[1].arch.units] == ["alone.0"]

    def test_convs_outside_of_their_module_are_left_alone(self):
        network = attached("Listed")[1]
        assert [unit.conv for unit in network.arch.units] == ["stem.0", "body.0"]
        assert network.arch.maps == ("body",)

    def test_modules_with_two_names(self):
        network = attached("Renamed")[1]
        assert [unit.conv for unit in network.arch.units] == ["stem.0", "body.0"]
        assert network.net.both[1] is network.net.body
        student = trained(network)
        assert not [key for key in student.tensors() if key.startswith(("both", "head"))]
        folded = fold(student)[0]
        assert folded.net.head is folded.net.rows

    def test_the_end_of_the_encoder(self):
        assert attached("Small")[1].arch.maps == ("body",)

    def test_norms_before_convs(self):
        arch = attached("PreActivation")[1].arch
        assert {unit.conv: unit.norm for unit in arch.units} == {
            "convs.0": "norms.1",
            "convs.1": None,
            "convs.2": "norms.3",
            "convs.3": None,
        }

    def test_a_norm_that_is_not_the_only_reader(self):
        arch = attached("Branching")[1].arch
        assert [(unit.conv, unit.norm) for unit in arch.units] == [("read_twice", None)]
        assert arch.output == 0

    def test_classifiers_that_are_added(self):
        arch = attached("Summed")[1].arch
        assert (arch.classifier, arch.multiple) == (("low", "high"), 4)

    def test_an_auxiliary_head_grows_and_is_not_trained(self):
        network = attached("Plain", {"auxiliary": True})[1]
        assert (network.arch.auxiliary, network.arch.output) == (("aux.1",), "out")
        student = trained(network)
        assert student.net.aux[1].out_channels == 6
        assert not any(p.requires_grad for p in student.net.aux.parameters())

    def test_stages(self):
        arch = attached("Plain")[1].arch
        assert arch.maps == ("stem", "point")
        assert arch.early == (("stem",), ("down", "wide", "fused", "point"))

    def test_named_parts(self):
        network = attached("Plain", maps=["wide", "stem"], classifier="head")[1]
        assert network.arch.maps == ("stem", "wide")

    def test_names_by_channel(self):
        assert default_names(build_odd("Plain")) == ["background", "class_1", "class_2"]

    def test_in_place_activations_do_not_change_the_maps(self):
        _, network = attached("Plain", maps=["point"])
        maps = network(image(), maps="before")
        assert maps.stages[0].min() < 0 <= maps.inputs[0].abs().min()  # F.relu_ runs on the output of `point`


class TestSteps:
    @pytest.mark.parametrize("rc", [RC(norm_after=True), RC(stages=("stage4",))], ids=str)
    def test_forms_that_only_our_own_networks_have(self, rc):
        with pytest.raises(ConfigError, match="networks of other libraries"):
            add_branches(attached("Plain")[1], rc)

    @torch.no_grad()
    def test_branches_without_norms(self):
        network = attached("Plain")[1].double()
        student, x = begin_step(add_branches(network), ["forklift"], absorb=True).eval(), image(dtype=torch.float64)
        assert error(network(x), student(x)[:, :3]) < 1e-10
        blocks = [part for part in student.modules() if isinstance(part, RCConv)]
        assert blocks and all(isinstance(block.new, torch.nn.Conv2d) for block in blocks)
        for block in blocks:
            block.new.weight += 0.05 * torch.randn(block.new.weight.shape, dtype=torch.float64)
            if block.new.bias is not None:
                block.new.bias += 0.1
        expected = student(x)
        assert error(network(x), expected[:, :3]) > 1e-3
        assert error(fold(student)[0](x), expected) < 1e-10
        assert error(pick(restore(student)(x), "out", 4), expected) < 1e-10
        again = build_any(student.arch, student.rows.steps).double()
        again.load_tensors(student.tensors(), range(4))
        assert error(again.eval()(x), expected) < 1e-10

    def test_freezing_early_stages(self):
        student = begin_step(add_branches(attached("Plain")[1]), ["forklift"])
        freeze_stages(student, 1)
        assert {student.part_of(n) for n, p in student.named_parameters() if not p.requires_grad} == {"backbone"}

    @torch.no_grad()
    def test_fusing_with_the_network_before(self):
        before = attached("Plain")[1].double()
        student = trained(before, (["forklift"],))
        x = image(dtype=torch.float64)
        assert error(student(x), fuse(student, before, 1.0)(x)) < 1e-10
        fused = fuse(student, before, 0.5)
        assert error(student(x), fused(x)) > 1e-3
        assert all(isinstance(b.new, torch.nn.Conv2d) for b in fused.modules() if isinstance(b, RCConv))
        assert error(fused(x), pick(restore(fused)(x), "out", 4)) < 1e-10

    def test_fusing_moves_every_tensor(self):
        before = attached("Plain", {"norm": "group"})[1]
        student = trained(before, (["forklift"],))
        fused = fuse(student, before, 0.0)
        assert torch.equal(fused.net.up.weight, before.net.up.weight)
        assert torch.equal(fused.net.down[1].weight, before.net.down[1].weight)


class TestRefusals:
    @pytest.mark.parametrize(
        ("name", "said"),
        [
            ("Softmaxed", "applies softmax"),
            ("Transposed", "'rows'"),
            ("Linear", "a linear layer in the module 'rows'"),
            ("Refined", "with one class more, the module 'again' fails"),
            ("exiting", "cannot be built: SystemExit: 3 classes are not enough"),
            ("not_a_network", "returns a int"),
            ("missing", "has no 'missing'"),
            ("ListedRows", "'rows' does not run as a part of its module"),
            ("Looped", "'rows' cannot be the classifier: it runs several times"),
            ("Hooked", "'stem' has a hook"),
            ("Keeping", "cannot be copied: RuntimeError"),
            ("WeightNorm", r"'body\.0' cannot be copied"),
            ("Lazy", r"'body\.0' of odd_networks:Lazy is a LazyConv2d"),
            ("RandomBuffer", "'noise' is not in the state dict"),
            ("NeedsTarget", "in training mode .* cross_entropy"),
            ("WithoutGradient", r"'stem\.0' takes no gradient"),
            ("InPlace", "no gradient can be computed in training mode"),
            ("Endless", "the logits of the network are not finite"),
            ("Reentrant", "no gradient passes through the map of 'body'"),
            ("scripted", "is scripted"),
        ],
    )
    @pytest.mark.filterwarnings("ignore:None of the inputs have requires_grad")
    def test_the_reason_is_named(self, name, said):
        with pytest.raises(ConfigError, match=said):
            attached(name)

    def test_another_number_of_classes(self):
        net = build_odd("Plain")
        with pytest.raises(ConfigError, match="4 classes are named"):
            attach_network(net, "odd_networks:Plain", {"classes": 3}, [*NAMES, "sky"])

    def test_one_channel(self):
        with pytest.raises(ConfigError, match="one output channel"):
            attach_network(build_odd("Plain", {"classes": 1}), "odd_networks:Plain", {"classes": 1}, NAMES[:1])

    def test_a_wrong_classifier(self):
        with pytest.raises(ConfigError, match="'up' is ConvTranspose2d"):
            attached("Plain", classifier="up")
        with pytest.raises(ConfigError, match=r"'down.0' cannot be the classifier: it has 16 rows"):
            attached("Plain", classifier="down.0")


class TestBuilders:
    def test_packages_must_be_allowed(self):
        with pytest.raises(ConfigError, match="not allowed") as refused:
            build_module("json.decoder:JSONDecoder", {})
        assert "--allow-import json" in refused.value.hint

    def test_what_a_package_merely_imports_is_refused(self):
        with pytest.raises(ConfigError, match="neither a class nor a function"):
            build_module("odd_networks:torch", {})
        with pytest.raises(ConfigError, match=r"is defined in torch, which is not allowed"):
            build_module("odd_networks:Tensor", {})

    @pytest.mark.parametrize("factory", ["odd_networks", "odd_networks:a.b", "os;x:y", ""])
    def test_other_paths_are_refused(self, factory):
        with pytest.raises(ConfigError):
            build_module(factory, {})

    def test_nested_factories(self):
        config = {"factory": "odd_networks:make_config", "args": {"classes": 5}}
        net = build_module("odd_networks:uses_config", {"config": config})
        assert isinstance(net, odd_networks.Plain)
        network = attach_network(net, "odd_networks:uses_config", {"config": config}, [*NAMES, "a", "b"])
        assert network.arch.classes_arg == ("config", "args", "classes")

    def test_the_number_of_classes_may_be_a_default(self):
        assert attach_network(build_odd("Small"), "odd_networks:Small", {}, NAMES).arch.classes_arg == ("classes",)
        config = {"factory": "odd_networks:make_config", "args": {}}
        net = build_module("odd_networks:uses_config", {"config": config})
        arch = attach_network(net, "odd_networks:uses_config", {"config": config}, NAMES).arch
        assert arch.classes_arg == ("config", "args", "classes")

    def test_arguments_must_be_json(self):
        with pytest.raises(ConfigError, match="numbers, texts, lists and dictionaries"):
            build_module("odd_networks:Plain", {"classes": object()})

    def test_wrong_arguments(self):
        with pytest.raises(ConfigError, match="cannot be built: TypeError"):
            build_module("odd_networks:Plain", {"colour": 3})

    def test_a_missing_package(self):
        with allowing(["no_such_package"]), pytest.raises(MissingDependencyError, match="is not installed"):
            build_module("no_such_package:Net", {})
