import importlib.util
import json
from dataclasses import replace
from functools import partial

import numpy as np
import onnx
import pytest
from delivered import by_key, deliver, save_checkpoint
from exports import described
from mutants.editing import constant, edit, expand_depthwise, insert, stored
from onnx import helper
from torch import nn

from rcil.checkpoint.file import save
from rcil.core.errors import CheckpointError, ConfigError, MissingDependencyError
from rcil.core.files import sha256_of
from rcil.model.metadata import class_table
from rcil.nn import begin_step, cost, plain_twin
from rcil.nn.units import convnorm
from rcil.nn.units.rc import DropPathMix, RCConv
from rcil_export.certificate import certify as engine_module
from rcil_export.certificate import certify as module
from rcil_export.certificate.certify import certify, engine_item
from rcil_export.checks.limits import limits_for
from rcil_export.engine.errors import EngineError
from rcil_export.graph.interface import Interface
from rcil_export.graph.shapes import InputShape, parse_shape

FIXED = Interface(shape=InputShape.of(48, 64))
OPEN = Interface(shape=parse_shape(None, "32x32:48x64:96x96", "1:2:4"), outputs=("mask", "confidence", "logits"))


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory):
    return save_checkpoint(tmp_path_factory.mktemp("resnet18"))


@pytest.fixture(scope="module")
def delivered(checkpoint):
    return deliver(checkpoint, FIXED)


@pytest.mark.parametrize("interface", [FIXED, OPEN], ids=["fixed", "open"])
def test_a_file_after_two_steps_costs_what_a_plain_network_does(checkpoint, tmp_path, interface):
    (tmp_path / "step.safetensors").write_bytes(checkpoint.read_bytes())
    given = deliver(tmp_path / "step.safetensors", interface)
    result = given.certified()
    items = by_key(result)
    assert list(items) == ["graph", "weights", "parameters", "macs"]
    assert {item.passed for item in items.values()} == {True} and {item.kind for item in items.values()} == {"proved"}
    document = json.loads(json.dumps(result.as_document()))
    assert document["sha256"] == {"model": sha256_of(given.model), "checkpoint": sha256_of(given.checkpoint)}
    assert document["items"][0]["kind"] == "proved"


@pytest.mark.parametrize(
    ("rc", "how"),
    [({}, {"absorb": True}), ({"norm_after": True}, {}), ({"stages": ("stage4", "head")}, {})],
    ids=["no norms", "norm after the sum", "late stages"],
)
def test_networks_with_other_forms_of_branches_are_certified(tmp_path, rc, how):
    model, metadata = described(step=1, rc=rc, blocks=(1, 1, 1, 1))
    model = begin_step(model, ["last"], **how)
    for block in model.modules():
        if isinstance(block, RCConv):
            for parameter in block.new.parameters():
                nn.init.normal_(parameter, std=0.1)
    classes = class_table([list(names) for names in model.classifier.steps])
    path = tmp_path / "step.safetensors"
    save(path, model.eval(), metadata.model_copy(update={"architecture": model.arch, "classes": classes, "step": 2}))
    given = deliver(path, FIXED)
    assert {item.passed for item in given.certified().items} == {True}

    def nudge(document):
        edit(stored(document, "backbone.stages.3.0.conv1.0.bias"), lambda values: values + np.float32(0.01))

    assert by_key(given.certified(nudge))["weights"].passed is False


def test_the_counts_are_those_of_torch(delivered):
    from rcil.checkpoint.file import load

    expected = cost(plain_twin(load(delivered.checkpoint)[0]), (48, 64))
    items = by_key(delivered.certified())
    assert items["parameters"].detail == {"delivered": expected.parameters, "closed_form": expected.parameters}
    assert items["macs"].detail == {"delivered": expected.macs, "closed_form": expected.macs}


@pytest.mark.parametrize("precision", ["fp16", "bf16"])
def test_a_file_in_another_precision_is_compared_in_that_precision(checkpoint, tmp_path, precision):
    (tmp_path / "step.safetensors").write_bytes(checkpoint.read_bytes())
    opset = 22 if precision == "bf16" else 18
    given = deliver(tmp_path / "step.safetensors", FIXED.model_copy(update={"precision": precision, "opset": opset}))
    items = by_key(given.certified())
    assert [items[key].passed for key in ("graph", "weights", "parameters", "macs")] == [True] * 4

    nudge = partial(scale_weight, name="backbone.stages.1.0.conv1.0.weight", factor=1.05)
    item = by_key(given.certified(nudge))["weights"]
    assert item.passed is False and "backbone.stages.1.0.conv1.0" in item.measured and "1 of" in item.measured
    rounded = replace(given, interface=FIXED)
    assert by_key(rounded.certified(replays={}))["graph"].passed is False, "an fp32 file was asked for"


@pytest.mark.parametrize("runtime", ["tensorrt", "cpu"])
def test_an_int8_file_is_compared_with_the_twin_in_int8(checkpoint, tmp_path, runtime):
    (tmp_path / "step.safetensors").write_bytes(checkpoint.read_bytes())
    interface = FIXED.model_copy(update={"precision": "int8", "runtime": runtime})
    given = deliver(tmp_path / "step.safetensors", interface, limits=limits_for("fp32", "int8", {"miou_drop": 100.0}))
    has_engines = runtime == "tensorrt" and importlib.util.find_spec("tensorrt_rtx") is not None
    items = by_key(given.certified(engine=has_engines))
    assert {item.passed for item in items.values()} == {True} and ("engine_int8" in items) == has_engines

    def steps(document):
        name = next(t.name for t in document.graph.initializer if t.data_type == 3 and len(t.dims) == 4)
        edit(stored(document, name), lambda values: values - np.sign(values))

    def ranges(document):
        node = next(node for node in document.graph.node if node.op_type == "QuantizeLinear")
        edit(stored(document, node.input[1]), lambda scale: 2 * scale)

    for change in (steps, ranges):
        item = by_key(given.certified(change))["weights"]
        assert item.passed is False and "Linear)" in item.measured


def test_a_conversion_that_cannot_be_repeated_is_not_proved(delivered):
    other = replace(delivered, interface=FIXED.model_copy(update={"precision": "int8"}))
    items = by_key(other.certified(replays={}))
    assert items["graph"].passed is None and items["weights"].passed is None
    assert "not proved" in items["graph"].measured and items["graph"].kind is None
    assert items["parameters"].passed is True


def node_of(document, name):
    return next(node for node in document.graph.node if node.name == name)


def leave_norm(document, name="backbone.stages.1.0.conv1.0"):
    channels = stored(document, f"{name}.weight").dims[0]
    constant(document, "gamma", np.ones((channels, 1, 1, 1), np.float32))
    constant(document, "beta", np.zeros(channels, np.float32))
    insert(document, name, helper.make_node("Conv", [name, "gamma", "beta"], ["norm"], name="norm", group=channels))


def double_dead(document, name="backbone.stages.1.0.conv1.0"):
    other = onnx.NodeProto()
    other.CopyFrom(node_of(document, name))
    other.name, other.output[0] = "again", "again"
    document.graph.node.insert(len(document.graph.node) - 1, other)


def double_live(document, name="backbone.stages.1.0.conv1.0"):
    other = onnx.NodeProto()
    other.CopyFrom(node_of(document, name))
    other.name, other.output[0] = "again", "again"
    insert(document, name, other, helper.make_node("Max", [name, "again"], ["both"], name="both"))


def scale_weight(document, name="head.paths.2.0.weight", factor=1 + 1e-6):
    def scaled(values):
        values.reshape(-1)[5] *= factor
        return values

    edit(stored(document, name), scaled)


def shift_bias(document):
    edit(stored(document, "backbone.stages.3.0.conv2.bias"), lambda values: values + np.float32(1e-4))


def swap_rows(document):
    for name in ("classifier.groups.0.weight", "classifier.groups.0.bias"):
        edit(stored(document, name), lambda values: values[::-1])


def shift_mean(document):
    edit(stored(document, "mean"), lambda values: values + 1)


@pytest.mark.parametrize(
    ("change", "failing", "words"),
    [
        (
            leave_norm,
            {"graph", "parameters", "macs"},
            ["norm (Conv) and backbone.stages.1.0.conv1.1 (LeakyRelu)", "the op is Conv"],
        ),
        (double_dead, {"graph", "macs"}, ["only the first graph has again (Conv)"]),
        (double_live, {"graph", "macs"}, ["again (Conv) and backbone.stages.1.0.conv1.1 (LeakyRelu)"]),
        (scale_weight, {"weights"}, ["head.paths.2.0 (Conv)", "1 of"]),
        (shift_bias, {"weights"}, ["backbone.stages.3.0.conv2 (Conv)", "backbone.stages.3.0.conv2.bias"]),
        (swap_rows, {"weights"}, ["classifier.groups.0 (Conv)"]),
        (shift_mean, {"graph"}, ["centred (Sub)", "the constant at input 1"]),
    ],
    ids=lambda value: getattr(value, "__name__", None),
)
def test_a_changed_file_is_found_out_and_the_layer_named(delivered, change, failing, words):
    items = by_key(delivered.certified(change))
    assert {key for key, item in items.items() if item.passed is False} == failing
    text = items["graph" if "graph" in failing else "weights"].measured
    for word in words:
        assert word in text


def test_a_depthwise_conv_that_became_dense_is_found_out(tmp_path):
    given = deliver(save_checkpoint(tmp_path, "efficientnet_lite0", 1), Interface(shape=InputShape.of(32, 32)))
    assert given.certified().ok
    name = "backbone.stages.0.0.depthwise.0"
    items = by_key(given.certified(expand_depthwise))
    assert {key for key, item in items.items() if item.passed is False} == {"graph", "parameters", "macs"}
    assert f"{name} (Conv)" in items["graph"].measured and "group" in items["graph"].measured


def shifted_bias(self, merged=RCConv.merged):
    conv = merged(self)
    conv.bias.data += 1e-4
    return conv


def lost_dilation(self, merged=RCConv.merged):
    conv = merged(self)
    if conv.kernel_size == (3, 3) and conv.dilation != (1, 1):
        conv.dilation = conv.padding = (1, 1)
    return conv


def dropped_branch(self):
    anchor = self.new.conv if hasattr(self.new, "norm") else self.new
    return convnorm.conv_like(anchor, *convnorm.kernel_of(self.new))


def wrong_eps(norm, affine_of=convnorm.affine_of):
    right, norm.eps = norm.eps, 2 * norm.eps
    found = affine_of(norm)
    norm.eps = right
    return found


@pytest.mark.parametrize(
    ("target", "name", "broken", "item", "layer"),
    [
        (RCConv, "merged", shifted_bias, "weights", "backbone.stages.0.0.conv1.0.bias"),
        (RCConv, "merged", lost_dilation, "graph", "backbone.stages.3.0.conv1.0 (Conv)"),
        (RCConv, "merged", dropped_branch, "weights", "backbone.stages.0.0.conv1.0.weight"),
        (
            DropPathMix,
            "expected",
            lambda self, like: like.new_full((self.channels,), 0.49),
            "weights",
            "conv1.0.weight",
        ),
        (convnorm, "affine_of", wrong_eps, "weights", "backbone.stem.0.weight"),
    ],
    ids=["bias shifted", "dilation lost", "branch dropped", "eta 0.49", "wrong eps"],
)
def test_a_broken_fold_is_named_although_it_is_still_broken(
    checkpoint, tmp_path, monkeypatch, target, name, broken, item, layer
):
    monkeypatch.setattr(target, name, broken)
    (tmp_path / "step.safetensors").write_bytes(checkpoint.read_bytes())
    found = by_key(deliver(tmp_path / "step.safetensors", FIXED).certified())[item]
    assert found.passed is False and layer in found.measured


def test_the_file_on_disk_is_certified_and_no_other(delivered, tmp_path):
    (tmp_path / "model.onnx").write_bytes(delivered.model.read_bytes()[:-100])
    with pytest.raises(CheckpointError, match="is not an ONNX file, or damaged"):
        certify(tmp_path / "model.onnx", delivered.checkpoint, FIXED, engine=False, latency=None, memory=False)


@pytest.mark.parametrize(("precision", "interface"), [("fp32", FIXED), ("fp16", OPEN)], ids=["fixed", "open"])
def test_engines_are_byte_identical_and_other_weights_are_not(checkpoint, tmp_path, precision, interface):
    pytest.importorskip("tensorrt_rtx")
    (tmp_path / "step.safetensors").write_bytes(checkpoint.read_bytes())
    given = deliver(tmp_path / "step.safetensors", interface.model_copy(update={"precision": precision}))
    item = by_key(given.certified(engine=True))[f"engine_{precision}"]
    assert item.passed is True and item.kind == "proved"
    assert item.detail["delivered"]["sha256"] == item.detail["plain"]["sha256"]
    assert item.detail["delivered"]["bytes"] > 10_000 and len(item.detail["plain"]["sha256"]) == 64
    assert item.detail["same_input"] is True and "the same bytes" in item.measured
    if (precision, interface) == ("fp32", FIXED):
        twice = engine_item(given.model, given.model, "fp32", ("sm86",), build_both=True)
        assert twice.passed is True and twice.detail["same_input"] is False
        stranger = onnx.load(given.model)
        swap_rows(stranger)
        (tmp_path / "stranger.onnx").write_bytes(stranger.SerializeToString())
        other = engine_item(given.model, tmp_path / "stranger.onnx", "fp32", ("sm86",))
        assert other.passed is False and other.detail["same_input"] is False


@pytest.mark.parametrize(
    ("error", "passed"),
    [
        (MissingDependencyError("TensorRT-RTX is not installed", "Install it with: pip install 'rcil[rtx]'"), None),
        (ConfigError("TensorRT-RTX cannot build for 'sm10'", "It builds for sm86."), None),
        (EngineError("TensorRT-RTX could not build the engine", "Use the ONNX file."), False),
    ],
)
def test_an_engine_that_cannot_be_built_is_an_item_with_the_reason(delivered, monkeypatch, error, passed):
    def refuse(*_):
        raise error

    monkeypatch.setattr(engine_module, "build_engine", refuse)
    item = by_key(delivered.certified(engine=True))["engine_fp32"]
    assert item.passed is passed and item.kind is None
    assert (item.measured, item.detail["remedy"]) == (f"not built: {error.message}", error.hint)


def test_latency_and_memory_are_those_of_the_delivered_file(delivered, monkeypatch):
    seen = []

    def watched(own, plain, shape, *_):
        seen.append((own, plain.name, onnx.load(plain).graph.node[3].op_type, shape))
        return module.Item("x", "x", True, "", "")

    monkeypatch.setattr(module, "latency_item", watched)
    monkeypatch.setattr(module, "memory_item", watched)
    delivered.certified(latency=module.LatencyOptions(), memory=True)
    assert seen == [(delivered.model, "plain.onnx", "Conv", (1, 48, 64, 3))] * 2
