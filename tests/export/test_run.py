import json

import onnx
import pytest
from exports import described
from networks import small_arch

from rcil.checkpoint.file import load, save
from rcil.checkpoint.metadata import Metadata, class_table
from rcil.errors import ConfigError, GateError, RcilError
from rcil.files import sha256_of
from rcil.nn import build, fold
from rcil_export import convert as convert_module
from rcil_export.interface import Interface
from rcil_export.onnx_file import read_onnx
from rcil_export.run import Request, parse_targets, run_export
from rcil_export.shapes import InputShape

INTERFACE = Interface(shape=InputShape.of(48, 64))


@pytest.fixture
def checkpoint(tmp_path):
    model, metadata = described("resnet18", 1)
    path = tmp_path / "step1.safetensors"
    save(path, model, metadata)
    return path


def leftovers(folder):
    return [path.name for path in folder.iterdir() if path.name.startswith(".")]


def test_one_command_makes_everything_and_the_report_says_so(checkpoint, tmp_path):
    parent, described_parent = described("resnet18", 0)
    save(tmp_path / "step0.safetensors", parent, described_parent)
    out = tmp_path / "out"
    said = []
    request = Request(checkpoint, out, INTERFACE, parent=tmp_path / "step0.safetensors", rounds=3)
    exported = run_export(request, said.append)
    assert exported.ok
    assert set(exported.files) == {"model.onnx", "report.html", "report.json"}
    assert leftovers(out) == []
    document = json.loads((out / "report.json").read_text())
    assert document["ok"] is True
    titles = {item["key"]: item["passed"] for result in document["results"] for item in result["items"]}
    assert titles["graph"] and titles["parameters"] and titles["macs"] and titles["error"] and titles["agreement"]
    assert "<img" in (out / "report.html").read_text()
    file = read_onnx(out / "model.onnx")
    assert file.metadata.architecture.folded
    assert file.metadata.lineage[-1].parent_sha256 == sha256_of(checkpoint)
    assert any("checking" in line for line in said)


def test_the_same_request_gives_the_same_graph(checkpoint, tmp_path):
    first, second = (
        run_export(Request(checkpoint, tmp_path / name, INTERFACE, rounds=0)).files["model.onnx"] for name in "ab"
    )
    assert first.read_bytes() == second.read_bytes()


def test_a_wrong_fold_leaves_a_report_and_no_model(checkpoint, tmp_path, monkeypatch):
    def wrong(model):
        folded, report = fold(model)
        folded.backbone.stages[2][0].conv1[0].weight.data *= 1.001
        return folded, report

    monkeypatch.setattr(convert_module, "fold", wrong)
    out = tmp_path / "out"
    exported = run_export(Request(checkpoint, out, INTERFACE, rounds=0))
    assert not exported.ok
    assert sorted(path.name for path in out.iterdir()) == ["report.html", "report.json"]
    failed = [item.key for result in exported.results for item in result.items if item.passed is False]
    assert failed == ["layers"]
    assert "backbone.stages.2.0.conv1" in exported.results[1].items[0].measured


def test_a_rejected_checkpoint_needs_force(checkpoint, tmp_path):
    model, metadata = load(checkpoint)
    save(checkpoint, model, metadata.model_copy(update={"rejected": "the old class lost 9 points"}))
    out = tmp_path / "out"
    with pytest.raises(GateError, match="the old class lost 9 points"):
        run_export(Request(checkpoint, out, INTERFACE, rounds=0))
    assert not out.exists()
    run_export(Request(checkpoint, out, INTERFACE, rounds=0, force=True))
    assert read_onnx(out / "model.onnx").metadata.rejected == "the old class lost 9 points"


def test_a_network_that_never_had_branches_exports_too(tmp_path):
    names = [["background", "a"]]
    model = build(small_arch("resnet18", rc=None), names).eval()
    save(tmp_path / "plain.safetensors", model, Metadata(architecture=model.arch, classes=class_table(names)))
    assert run_export(Request(tmp_path / "plain.safetensors", tmp_path / "out", INTERFACE, rounds=0)).ok


def test_a_folder_that_cannot_be_made_is_named(checkpoint, tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(RcilError, match="cannot write to"):
        run_export(Request(checkpoint, tmp_path / "file" / "out", INTERFACE, rounds=0))


def test_targets_are_checked():
    assert parse_targets("onnx") == ("onnx",)
    assert parse_targets("engine") == ("onnx", "engine")
    with pytest.raises(ConfigError, match="no target 'plan'"):
        parse_targets("plan")


def test_half_precision_is_what_the_file_says(checkpoint, tmp_path):
    interface = INTERFACE.model_copy(update={"precision": "fp16"})
    exported = run_export(Request(checkpoint, tmp_path / "out", interface, rounds=0))
    assert exported.ok
    file = read_onnx(exported.files["model.onnx"])
    assert file.interface.precision == "fp16"
    kernels = {t.data_type for t in file.document.graph.initializer if len(t.dims) == 4 and t.dims[2] == 3}
    assert kernels == {onnx.TensorProto.FLOAT16}
    assert exported.document["conversion"]["agreement"] >= 0.999
