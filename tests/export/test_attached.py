"""Networks of other libraries through the export: torch.onnx, the certificate, reproducible bytes, refusals."""

import importlib.util
import json
import shutil

import numpy as np
import onnx
import onnxruntime
import pytest
import torch
from odd_networks import NAMES

import rcil
import rcil_export
from rcil.checkpoint.file import save
from rcil.core.allowed_imports import allowing
from rcil.core.errors import ConfigError, RcilError
from rcil.model.metadata import class_table
from rcil.nn import begin_step
from rcil.nn.step import add_branches
from rcil.nn.units.rc import RCConv
from rcil_export.check_files import check_files
from rcil_export.checks.artefact import open_artefact
from rcil_export.checks.bisect import bisect
from rcil_export.fold_checkpoint import FoldCheckError, fold_checkpoint
from rcil_export.images import generated_images

needs_script = pytest.mark.skipif(
    importlib.util.find_spec("onnxscript") is None, reason="onnxscript, which torch.onnx needs, is not installed"
)
pytestmark = pytest.mark.filterwarnings("ignore:.*:DeprecationWarning")
OPTIONS = {"size": (64, 80), "targets": ["onnx"], "rounds": 0, "allow": ["odd_networks"]}


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory):
    """A network of another library after a step, with both branches."""
    return after_a_step("Plain", tmp_path_factory.mktemp("attached"))


def after_a_step(name, folder):
    torch.manual_seed(0)
    model = rcil.attach(f"odd_networks:{name}", {"classes": 3}, classes=NAMES)
    network = begin_step(add_branches(model.network), ["pole"], rows="balanced").eval()
    with torch.no_grad():
        for parameter in network.parameters():
            if parameter.requires_grad:
                parameter += 0.05 * torch.randn_like(parameter)
    path = folder / "model.safetensors"
    classes = class_table([NAMES, ["pole"]])
    save(path, network, model.metadata.model_copy(update={"classes": classes, "step": 1}))
    return path


@needs_script
def test_export_proves_and_repeats(checkpoint, tmp_path):
    first = rcil_export.export(checkpoint, tmp_path / "one", **OPTIONS)
    assert first.ok
    assert first.document["facts"]["route"] == "torch.onnx"
    certificate = next(result for result in first.results if result.key == "certificate")
    assert {item.key: item.passed for item in certificate.items} == dict.fromkeys(
        ("graph", "weights", "parameters", "macs"), True
    )
    rcil_export.export(checkpoint, tmp_path / "two", **OPTIONS)
    one, two = (tmp_path / name / "model.onnx" for name in ("one", "two"))
    assert one.read_bytes() == two.read_bytes()
    assert str(tmp_path).encode() not in one.read_bytes()


@needs_script
class TestLayers:
    """Forms of one network agree at every unit and at the classifier, and a wrong layer is named."""

    @pytest.fixture(scope="class")
    def graph(self, checkpoint, tmp_path_factory):
        folder = tmp_path_factory.mktemp("graph")
        report = rcil_export.export(checkpoint, folder / "out", **OPTIONS)
        (layers,) = (result for result in report.results if result.key == "bisect")
        assert "layers agree" in layers.items[0].measured
        return folder / "out" / "model.onnx"

    @pytest.fixture(scope="class")
    def folded(self, checkpoint, tmp_path_factory):
        path = tmp_path_factory.mktemp("folded") / "folded.safetensors"
        rcil.load(checkpoint, allow=["odd_networks"]).fold().save(path)
        return path

    def compared(self, first, second):
        with allowing(["odd_networks"]), open_artefact(first) as a, open_artefact(second) as b:
            return bisect(a, b, next(iter(generated_images(1, (64, 80)))).pixels)

    @pytest.mark.parametrize("reverse", [False, True])
    def test_forms_agree(self, checkpoint, graph, folded, reverse):
        for pair in ((checkpoint, graph), (folded, graph), (checkpoint, folded)):
            report = self.compared(*(reversed(pair) if reverse else pair))
            assert report.divergence is None
            names = {"net.stem.0", "net.down.0", "net.wide.0", "net.fused.0", "net.point.0", "net.head", "interpolate"}
            assert {layer.layer for layer in report.layers} == names
            assert 0 < max(layer.own for layer in report.layers) < 1e-5
            assert all(layer.accumulated is not None for layer in report.layers)

    @pytest.mark.parametrize("layer", ["net.wide.0", "net.head"])
    def test_a_wrong_layer_is_named(self, checkpoint, graph, tmp_path, layer):
        document = onnx.load(graph)
        (node,) = (node for node in document.graph.node if layer in node.output)
        (kernel,) = (tensor for tensor in document.graph.initializer if tensor.name == node.input[1])
        kernel.CopyFrom(onnx.numpy_helper.from_array(onnx.numpy_helper.to_array(kernel) * 1.01, kernel.name))
        onnx.save(document, tmp_path / "wrong.onnx")
        report = self.compared(checkpoint, tmp_path / "wrong.onnx")
        assert report.divergence.layer == layer
        assert sum(layer.own > 1e-4 for layer in report.layers) == 1

    def test_the_command(self, checkpoint, graph):
        with allowing(["odd_networks"]):
            report = check_files(checkpoint, graph)
        (layers,) = (result for result in report.results if result.key == "bisect")
        assert "7 layers agree" in layers.items[0].measured

    def test_the_delivery_is_verified(self, checkpoint, graph, tmp_path):
        with allowing(["odd_networks"]):
            assert rcil_export.verify(graph.parent, checkpoint).ok
            shutil.copytree(graph.parent, tmp_path / "out")
            report = tmp_path / "out" / "report.json"
            document = json.loads(report.read_text())
            (macs,) = (i for r in document["results"] for i in r["items"] if i["key"] == "macs")
            macs["measured"] = "1 (proved)"
            report.write_text(json.dumps(document))
            assert not rcil_export.verify(tmp_path / "out", checkpoint).ok

    def test_other_classes(self, checkpoint, tmp_path):
        path = tmp_path / "other.safetensors"
        model = rcil.attach("odd_networks:Plain", {"classes": 3}, classes=NAMES)
        model.save(path)
        with pytest.raises(RcilError, match="with the same classes only"):
            self.compared(path, checkpoint)


@needs_script
def test_a_mistake_in_folding_is_found(checkpoint, tmp_path, monkeypatch):
    right = RCConv.merged

    def wrong(block):
        conv = right(block)
        with torch.no_grad():
            conv.weight[0] *= 1 + 1e-5
        return conv

    monkeypatch.setattr(RCConv, "merged", wrong)
    found = rcil_export.export(checkpoint, tmp_path / "out", **OPTIONS)
    certificate = next(result for result in found.results if result.key == "certificate")
    assert [item.key for item in certificate.items if item.passed is False] == ["weights"]
    with allowing(["odd_networks"]), pytest.raises(FoldCheckError, match="folded a second way"):
        fold_checkpoint(checkpoint, tmp_path / "folded.safetensors")


def test_fold_a_checkpoint(checkpoint, tmp_path):
    with allowing(["odd_networks"]):
        check = fold_checkpoint(checkpoint, tmp_path / "folded.safetensors")
        assert check.ok
        assert rcil.load(tmp_path / "folded.safetensors").metadata.architecture.folded


@needs_script
@pytest.mark.parametrize("options", [{"precision": "fp16"}, {"precision": "int8", "runtime": "cpu"}])
def test_other_precisions(tmp_path, options):
    """Of a network in which constants are computed, and sums have constants."""
    checkpoint = after_a_step("Standardised", tmp_path)
    found = rcil_export.export(checkpoint, tmp_path / "out", **OPTIONS, **options)
    assert found.ok
    nodes = onnx.load(tmp_path / "out" / "model.onnx").graph.node
    used = {"fp16": "Cast", "int8": "QuantizeLinear"}[options["precision"]]
    assert used in {node.op_type for node in nodes}


@needs_script
def test_several_sizes_and_batches(checkpoint, tmp_path):
    sizes = {"size": None, "dynamic": ((64, 64), (72, 88), (96, 96)), "batch": (1, 2, 3), "outputs": ["logits"]}
    found = rcil_export.export(checkpoint, tmp_path / "out", **OPTIONS | sizes)
    assert found.ok
    model = rcil.load(checkpoint, allow=["odd_networks"])
    session = onnxruntime.InferenceSession(tmp_path / "out" / "model.onnx")
    for batch, height, width in ((1, 64, 64), (3, 65, 91), (2, 96, 96)):
        images = np.random.default_rng(0).integers(0, 256, (batch, height, width, 3), np.uint8)
        logits = session.run(["logits"], {"image": images})[0]
        assert logits == pytest.approx(model.logits(list(images)).numpy(), abs=1e-4)


def test_sizes_of_a_network_that_needs_multiples(tmp_path):
    sizes = {"size": None, "dynamic": ((64, 64), (64, 80), (96, 96))}
    with pytest.raises(ConfigError, match="multiples of 4"):
        rcil_export.export(after_a_step("Summed", tmp_path), tmp_path / "out", **OPTIONS | sizes)
    assert not (tmp_path / "out").exists()
