import json
import shutil

import numpy as np
import onnx
import pytest
from mutants.editing import a_conv, copied, edit, nodes_of, stored
from mutants.exported import checkpoint_of, honest
from onnx import numpy_helper
from typer.testing import CliRunner

from rcil.checkpoint.file import load, save
from rcil.core.errors import CheckpointError
from rcil.core.files import sha256_of
from rcil_export.cli.app import app
from rcil_export.engine.sidecar import read_sidecar, sidecar_path
from rcil_export.graph.onnx_file import read_onnx, write_onnx
from rcil_export.triton.repository import publish
from rcil_export.verification import engine as verify_engine
from rcil_export.verification.report import (
    MAX_SHOWN,
    Claim,
    Difference,
    VerifyReport,
    as_text,
    claim_of,
    compare_documents,
    compare_texts,
)
from rcil_export.verification.run import verify

runner = CliRunner()


@pytest.fixture
def document():
    return copied(honest("fp32").document)


@pytest.fixture
def verified(tmp_path):
    """Write a graph and verify it against the checkpoint of the honest one."""

    def run(graph, checkpoint=None):
        write_onnx(tmp_path / "model.onnx", graph)
        return verify(tmp_path / "model.onnx", checkpoint or honest("fp32").checkpoint)

    return run


def rebuild(report):
    (claim,) = [claim for claim in report.claims if claim.key == "rebuild"]
    return claim


def renamed(graph, of):
    """Every node, value and constant under another name."""
    ends = {value.name for value in (*graph.input, *graph.output)}
    for node in graph.node:
        node.name = of(node.name)
        for names in (node.input, node.output):
            for index, name in enumerate(names):
                names[index] = name if name in ends or not name else of(name)
    for tensor in graph.initializer:
        tensor.name = of(tensor.name)


def test_equal_bytes_are_said_to_be_equal(verified, document):
    report = verified(document)
    assert report.ok and "bytes" in rebuild(report).text
    assert report.checkpoint_sha256 == sha256_of(honest("fp32").checkpoint)
    assert report.interfaces["model.onnx"]["outputs"] == ["mask", "confidence"]


def test_other_names_and_another_storage_are_the_same_model(verified, document):
    renamed(document.graph, lambda name: f"other/{name}")
    for tensor in document.graph.initializer:
        if tensor.data_type == onnx.TensorProto.FLOAT:
            values = numpy_helper.to_array(tensor).ravel().tolist()
            tensor.ClearField("raw_data")
            tensor.float_data.extend(values)
    document.producer_version = "0.0.1"
    report = verified(document)
    assert report.ok, report.differences
    assert "other bytes, written by rcil 0.0.1" in rebuild(report).text


def test_a_weight_under_other_names_is_found(verified, document):
    edit(stored(document, a_conv(document).input[1]), lambda w: w * np.float32(1.01))
    renamed(document.graph, lambda name: f"other/{name}")
    (difference,) = rebuild(verified(document)).differences
    assert "values differ" in difference.delivered


def test_a_node_under_other_names_is_found(verified, document):
    nodes_of(document, "LeakyRelu")[2].attribute[0].f = 0.3
    renamed(document.graph, lambda name: f"other/{name}")
    (difference,) = rebuild(verified(document)).differences
    assert "alpha" in difference.delivered


def test_both_values_are_told(verified, document):
    conv = a_conv(document)
    tensor = stored(document, conv.input[1])
    before = numpy_helper.to_array(tensor).copy()

    def change(w):
        w[1, 2, 0, 0] = 7
        return w

    edit(tensor, change)
    (difference,) = rebuild(verified(document)).differences
    assert difference.where == f"{tensor.name}[1, 2, 0, 0]"
    assert difference.delivered == f"7.0; 1 of {before.size} values differ"
    assert difference.expected == str(before[1, 2, 0, 0])


def test_tensors_in_another_file_are_refused(verified, document):
    tensor = stored(document, a_conv(document).input[1])
    tensor.ClearField("raw_data")
    tensor.data_location = onnx.TensorProto.EXTERNAL
    tensor.external_data.add(key="location", value="weights.bin")
    differences = verified(document).differences
    assert any(d.where == tensor.name and d.delivered == "stored in another file" for d in differences)


def test_the_checkpoint_of_another_step_is_another_checkpoint(verified, document, tmp_path):
    model, metadata = load(honest("fp32").checkpoint)
    model.backbone.stages[1][0].conv1.new.conv.weight.data[0, 0, 0, 0] += 0.5
    save(tmp_path / "other.safetensors", model, metadata)
    report = verified(document, tmp_path / "other.safetensors")
    where = {difference.where for difference in report.differences}
    assert "rcil.lineage[0].parent_sha256" in where
    assert any("stages.1.0.conv1" in name for name in where)


@pytest.mark.parametrize("data", [b"", b"not onnx", bytes(1000), b"\x08\x09" * 40])
def test_what_is_no_graph_is_wrong_without_a_traceback(data, tmp_path):
    (tmp_path / "model.onnx").write_bytes(data)
    report = verify(tmp_path / "model.onnx", honest("fp32").checkpoint)
    assert not report.ok


def test_a_classifier_is_no_segmenter(verified, document, tmp_path):
    report = verified(document, honest("classifier").checkpoint)
    assert not report.ok and "segmenter" in report.claims[0].text


def test_what_cannot_be_verified_is_named(tmp_path):
    checkpoint = honest("fp32").checkpoint
    with pytest.raises(CheckpointError, match=r"no model\.onnx"):
        verify(tmp_path, checkpoint)
    with pytest.raises(CheckpointError, match="neither a delivered folder"):
        verify(checkpoint, checkpoint)
    write_onnx(tmp_path / "model.onnx", honest("fp32").document)
    with pytest.raises(CheckpointError, match="cannot read"):
        verify(tmp_path / "model.onnx", tmp_path / "missing.safetensors")
    with pytest.raises(CheckpointError, match=r"missing\.onnx"):
        verify(tmp_path / "missing.onnx", checkpoint)


def test_engines_of_other_versions_and_of_classic_tensorrt_are_not_proved(delivered, tmp_path, monkeypatch):
    folder = tmp_path / "folder"
    shutil.copytree(delivered / "folder", folder, ignore=shutil.ignore_patterns("report.json"))
    monkeypatch.setattr(verify_engine, "build_engine", lambda *_: pytest.fail("nothing to build"))
    for change, why in (({"version": "0.9"}, "which is 1."), ({"flavour": "classic"}, "same bytes twice")):
        sidecar = read_sidecar(delivered / "folder" / "model.engine").model_copy(update=change)
        sidecar_path(folder / "model.engine").write_text(sidecar.model_dump_json())
        report = verify(folder, checkpoint_of("resnet18"))
        (claim,) = [claim for claim in report.claims if claim.key == "engine"]
        assert report.ok and claim.status == "not proved" and why in claim.text


def test_a_triton_repository_with_other_steps(delivered, tmp_path):
    repository = tmp_path / "triton"
    shutil.copytree(delivered / "triton", repository)
    file = read_onnx(repository / "yard" / "1" / "model.onnx")
    later = file.metadata.model_copy(update={"step": 2})
    publish(repository / "yard" / "1" / "model.onnx", later, file.interface, repository, name="yard")
    for place in (repository, repository / "yard"):
        report = verify(place, checkpoint_of("resnet18"))
        assert report.ok, report.differences
        found = {(claim.file.rpartition("yard/")[2], claim.status) for claim in report.claims}
        assert {("2", "not proved"), ("config.pbtxt", "not proved"), ("1/step.json", "proved")} <= found


def test_the_command(delivered, tmp_path):
    checkpoint = str(checkpoint_of("resnet18"))
    before = sorted(path.name for path in (delivered / "folder").iterdir())
    done = runner.invoke(app, ["verify", str(delivered / "folder"), checkpoint, "-o", str(tmp_path / "out.json")])
    assert done.exit_code == 0, done.output
    assert "0 wrong" in done.stdout and "states" in done.stdout
    assert sorted(path.name for path in (delivered / "folder").iterdir()) == before
    assert json.loads((tmp_path / "out.json").read_text())["ok"] is True
    spoilt = copied(honest("fp32").document)
    nodes_of(spoilt, "LeakyRelu")[2].attribute[0].f = 0.3
    write_onnx(tmp_path / "model.onnx", spoilt)
    done = runner.invoke(app, ["verify", str(tmp_path / "model.onnx"), checkpoint, "--json"])
    assert done.exception.exit_code == 13
    claims = json.loads(done.stdout)["claims"]
    assert claims[0]["status"] == "wrong" and "alpha" in claims[0]["differences"][0]["where"]


def test_fields_are_compared_at_every_depth():
    found = compare_documents({"a": [1, {"b": 2}], "c": 1, "n": None}, {"a": [1, {"b": 3}, 4], "d": 1, "n": 0})
    assert [(d.where, d.delivered, d.expected) for d in found] == [
        ("a[1].b", "2", "3"),
        ("a", "2 entries", "3 entries"),
        ("d", "absent", "1"),
        ("n", "null", "0"),
        ("c", "1", "absent"),
    ]
    assert [d.where for d in compare_documents({"a": True}, {"a": 1})] == ["a"]


def test_texts_that_hold_json_are_compared_by_field():
    found = list(compare_texts({"x": '{"a": 1}', "y": "1"}, {"x": '{"a":2}', "y": "2", "z": ""}))
    assert [d.where for d in found] == ["x.a", "y", "z"]
    (found,) = compare_texts({"x": '{"a": 1, "a": 1}'}, {"x": '{"a":1}'})
    assert "written differently" in found.delivered


def test_the_text_lists_the_first_differences_and_counts_the_rest():
    differences = [Difference(f"layer {i}", "1", "2") for i in range(MAX_SHOWN + 5)]
    wrong = claim_of("model.onnx", "rebuild", "Same", "all equal", differences)
    report = VerifyReport("d", "c", "0" * 64, (wrong, Claim("model.onnx", "x", "T", "not proved", "why")))
    text = as_text(report)
    assert not report.ok
    assert f"layer {MAX_SHOWN - 1}\n" in text and f"layer {MAX_SHOWN}\n" not in text and "and 5 more" in text
    assert text.endswith("0 proved, 1 not proved, 1 wrong")
