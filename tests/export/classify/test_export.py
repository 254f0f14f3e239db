import json
from functools import partial

import numpy as np
import onnx
import pytest
import torch
from classifiers import HEADS, small_classifier
from exports import photographs, run_onnx
from onnx import numpy_helper
from typer.testing import CliRunner

from rcil.classify.checkpoint import save_classifier
from rcil.classify.network import fold_classifier
from rcil.core.errors import CheckpointError, ConfigError
from rcil.core.files import sha256_of
from rcil.inference import as_input
from rcil.model.metadata import ClassifierMetadata
from rcil_export import run as run_module
from rcil_export.certificate import certify as certify_module
from rcil_export.certificate.certify import certify
from rcil_export.certificate.difference import first_difference
from rcil_export.checks.limits import limits_for
from rcil_export.checks.result import Item, Result
from rcil_export.classify import export as module
from rcil_export.classify.scores import ScoredGraph, compare_scores
from rcil_export.cli.app import app
from rcil_export.engine import build as engine_build
from rcil_export.graph.export import to_onnx
from rcil_export.graph.interface import ClassifierInterface
from rcil_export.graph.onnx_file import read_onnx
from rcil_export.graph.shapes import Extent, InputShape
from rcil_export.images import CheckImage, CheckImages
from rcil_export.request import Request
from rcil_export.run import run_export
from rcil_serve.runtime.onnx_backend import OnnxBackend

ANY_BATCH = InputShape(batch=Extent(low=1, usual=2, high=4), height=Extent.of(32), width=Extent.of(32))
SHAPES = {"fixed": InputShape.of(32, 32, 2), "any batch": ANY_BATCH}


@pytest.fixture(params=[(head, 16) for head in HEADS] + [("linear", 32)], ids=str)
def described(request):
    return small_classifier(*request.param)


@pytest.fixture
def checkpoint(described, tmp_path):
    save_classifier(tmp_path / "step1.safetensors", *described)
    return tmp_path / "step1.safetensors"


@pytest.mark.parametrize("shape", SHAPES.values(), ids=SHAPES)
def test_the_graph_gives_the_scores_and_labels_of_the_two_branch_network(described, shape):
    model, metadata = described
    document = to_onnx(fold_classifier(model)[0], metadata, ClassifierInterface(shape=shape))
    images = photographs(2, 32, 32)
    outputs = run_onnx(document, images)
    with torch.no_grad():
        scores = model(torch.stack([as_input(metadata, image) for image in images])).numpy()
    assert outputs["scores"].dtype == np.float32 and outputs["label"].dtype == np.uint8
    assert np.abs(outputs["scores"] - scores).max() < 1e-4 * np.ptp(scores)
    assert outputs["label"].tolist() == scores.argmax(1).tolist()
    if shape is ANY_BATCH:
        single = run_onnx(document, images[1:])
        assert np.allclose(single["scores"][0], outputs["scores"][1], atol=1e-4 * np.ptp(scores))


def test_an_embedding_of_nothing_but_zeros_divides_by_no_zero(tmp_path):
    model, metadata = small_classifier("cosine")
    folded = fold_classifier(model)[0]
    with torch.no_grad():
        for conv in (part for part in folded.backbone.modules() if isinstance(part, torch.nn.Conv2d)):
            conv.weight.zero_()
            conv.bias.zero_()
    document = to_onnx(folded, metadata, ClassifierInterface(shape=InputShape.of(32, 32)))
    assert run_onnx(document, photographs(1, 32, 32))["scores"].tolist() == [[0.0, 0.0, 0.0]]


def test_one_command_makes_everything_and_the_report_says_so(checkpoint, tmp_path, monkeypatch):
    built = []
    real = certify_module.engine_item
    monkeypatch.setattr(
        certify_module, "engine_item", lambda *given: built.append(given) or real(*given[:3], ("sm86",))
    )
    out = tmp_path / "out"
    request = Request(checkpoint, out, ClassifierInterface(shape=InputShape.of(32, 32)), rounds=0)
    exported = run_export(request)
    assert exported.ok
    assert {path.name for path in out.iterdir()} == {"model.onnx", "report.html", "report.json", "model_card.md"}
    document = json.loads((out / "report.json").read_text())
    verdicts = {item["key"]: item["passed"] for result in document["results"] for item in result["items"]}
    keys = {"fold_error", "fold_labels", "onnx_error", "onnx_labels", "graph", "weights", "parameters", "macs"}
    assert {key: verdicts[key] for key in keys} == dict.fromkeys(keys, True)
    assert document["sha256"] == {"checkpoint": sha256_of(checkpoint), "model.onnx": sha256_of(out / "model.onnx")}
    assert verdicts["engine_fp32"] is not False and len(built) == 1
    props = {entry.key: entry.value for entry in onnx.load(out / "model.onnx").metadata_props}
    stored = ClassifierMetadata.model_validate_json(props["rcil"])
    assert stored.architecture.folded
    assert stored.lineage[-1].parent_sha256 == sha256_of(checkpoint)
    assert ClassifierInterface.model_validate_json(props["rcil.interface"]) == request.interface


def test_a_fold_that_changes_scores_is_found_and_nothing_but_the_report_is_written(tmp_path, monkeypatch):
    save_classifier(tmp_path / "m.safetensors", *small_classifier("linear"))

    def broken(model):
        folded, report = fold_classifier(model)
        with torch.no_grad():
            folded.head.groups[0].bias[0] += 0.01
        return folded, report

    monkeypatch.setattr(module, "fold_classifier", broken)
    monkeypatch.setattr(run_module, "certify", lambda *_, **__: Result("certificate", "left out", ()))
    request = Request(tmp_path / "m.safetensors", tmp_path / "out", ClassifierInterface(shape=InputShape.of(32, 32)))
    exported = run_export(request)
    assert not exported.ok
    assert {path.name for path in (tmp_path / "out").iterdir()} == {"report.failed.html", "report.failed.json"}
    failed = [item.key for result in exported.results for item in result.items if item.passed is False]
    assert failed == ["fold_error"], "the graph still does what the folded network does"


def test_another_label_is_found(described):
    model, metadata = described
    folded, interface = fold_classifier(model)[0], ClassifierInterface(shape=InputShape.of(32, 32))
    document = to_onnx(folded, metadata, interface)
    for node in document.graph.node:
        if node.op_type == "ArgMax":
            node.op_type = "ArgMin"
    images = CheckImages("", tuple(partial(CheckImage, "", image) for image in photographs(4, 32, 32)))
    graph = ScoredGraph(document, metadata, interface)
    result = compare_scores(model, folded, graph, images, limits_for("fp32", "fp32"))
    assert {item.key: item.passed for item in result.items} == {
        "fold_error": True,
        "fold_labels": True,
        "onnx_error": True,
        "onnx_labels": False,
    }


@pytest.mark.parametrize(
    ("name", "item", "words"),
    [
        ("backbone.stages.1.0.conv1.0.weight", "weights", "backbone.stages.1.0.conv1.0 (Conv)"),
        ("head.scale", "weights", "head (Mul)"),
        ("head.conv.weight", "weights", "head.conv (Conv)"),
        ("mean", "graph", "centred (Sub)"),
    ],
)
def test_a_delivered_classifier_with_another_number_is_found_out(tmp_path, name, item, words):
    checkpoint, interface = tmp_path / "m.safetensors", ClassifierInterface(shape=InputShape.of(32, 32))
    model, metadata = small_classifier("cosine")
    save_classifier(checkpoint, model, metadata)
    document = to_onnx(fold_classifier(model)[0], metadata, interface)

    def verdicts():
        (tmp_path / "model.onnx").write_bytes(document.SerializeToString())
        result = certify(tmp_path / "model.onnx", checkpoint, interface, engine=False, latency=None, memory=False)
        return {item.key: item for item in result.items}

    assert [found.passed for found in verdicts().values()] == [True] * 4
    tensor = next(tensor for tensor in document.graph.initializer if tensor.name == name)
    tensor.CopyFrom(numpy_helper.from_array(numpy_helper.to_array(tensor) * np.float32(1 + 1e-6), name))
    found = verdicts()[item]
    assert found.passed is False and words in found.measured


def test_the_graphs_of_both_heads_differ(tmp_path):
    interface = ClassifierInterface(shape=InputShape.of(32, 32))
    first, second = (
        to_onnx(fold_classifier(model)[0], metadata, interface) for model, metadata in map(small_classifier, HEADS)
    )
    assert first_difference(first, second) is not None


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--precision", "fp16"], "exported in fp32, not in fp16"),
        (["--outputs", "logits"], "--outputs is for segmenters"),
        (["--calibrate", "x"], "--calibrate is for segmenters"),
        (["--parent", "x"], "--previous is for segmenters"),
        (["--triton", "x"], "--triton is for segmenters"),
    ],
)
def test_options_that_are_about_masks_are_refused(tmp_path, options, message):
    save_classifier(tmp_path / "m.safetensors", *small_classifier("linear"))
    ran = CliRunner().invoke(app, [str(tmp_path / "m.safetensors"), "-o", str(tmp_path / "out"), *options])
    assert isinstance(ran.exception, ConfigError)
    assert message in ran.exception.message
    assert not (tmp_path / "out").exists()


def test_the_command_recognises_a_classifier_and_takes_its_size(tmp_path, monkeypatch):
    save_classifier(tmp_path / "m.safetensors", *small_classifier("linear"))
    monkeypatch.setattr(certify_module, "engine_item", lambda *_: Item("engine_fp32", "engine", None, "", ""))
    words = [str(tmp_path / "m.safetensors"), "-o", str(tmp_path / "out"), "--rounds", "0", "--target", "onnx"]
    ran = CliRunner().invoke(app, words)
    assert ran.exit_code == 0, ran.output
    document = onnx.load(tmp_path / "out" / "model.onnx")
    dims = [dim.dim_value for dim in document.graph.input[0].type.tensor_type.shape.dim]
    assert dims == [1, 32, 32, 3]
    assert [output.name for output in document.graph.output] == ["label", "scores"]


def test_programs_that_expect_masks_say_what_the_file_is(tmp_path):
    model, metadata = small_classifier("linear")
    document = to_onnx(fold_classifier(model)[0], metadata, ClassifierInterface(shape=InputShape.of(32, 32)))
    onnx.save(document, tmp_path / "model.onnx")
    for open_ in (read_onnx, OnnxBackend):
        with pytest.raises(
            CheckpointError, match=r"model\.onnx: .* a classifier of whole images, which does not output masks"
        ):
            open_(tmp_path / "model.onnx")


def test_inspect_and_engine_take_the_graph_of_a_classifier(tmp_path, monkeypatch):
    model, metadata = small_classifier("linear")
    document = to_onnx(fold_classifier(model)[0], metadata, ClassifierInterface(shape=ANY_BATCH))
    path = tmp_path / "model.onnx"
    onnx.save(document, path)
    shown = json.loads(CliRunner().invoke(app, ["inspect", str(path), "--json"]).stdout)
    assert shown["classes"] == {"a": 0, "b": 0, "c": 1}
    assert shown["interface"]["outputs"] == ["label", "scores"]
    assert list(shown["colours"]) == ["a", "b", "c"]
    asked = []

    def build(source, target, options, listen):
        asked.append(options)
        raise ConfigError("far enough")

    monkeypatch.setattr(engine_build, "build_engine", build)
    CliRunner().invoke(app, ["engine", str(path), "-o", str(tmp_path / "model.engine"), "--gpu", "sm86"])
    assert [(one.precision, one.profile, one.gpus) for one in asked] == [("fp32", ANY_BATCH, ("sm86",))]
    onnx.helper.set_model_props(document, {"rcil": '{"kind": "classifier"}', "rcil.interface": "{}"})
    onnx.save(document, path)
    damaged = CliRunner().invoke(app, ["inspect", str(path)])
    assert isinstance(damaged.exception, CheckpointError) and "is damaged" in damaged.exception.message
