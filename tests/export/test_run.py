import json
import shutil

import numpy as np
import onnx
import pytest
from exports import described
from networks import small_arch

from rcil.checkpoint.file import load, save
from rcil.core.errors import ConfigError, GateError, RcilError
from rcil.core.files import sha256_of
from rcil.model.metadata import Metadata, class_table
from rcil.nn import build, fold
from rcil_export import convert as convert_module
from rcil_export import exportable, segmenter
from rcil_export import run as run_module
from rcil_export.checks.artefact import OnnxArtefact
from rcil_export.checks.result import Result
from rcil_export.engine.errors import EngineError
from rcil_export.engine.gpu import Gpu
from rcil_export.engine.sidecar import EngineSidecar, TensorInfo, sidecar_path
from rcil_export.graph.interface import Interface
from rcil_export.graph.onnx_file import description_of, read_onnx
from rcil_export.graph.shapes import InputShape
from rcil_export.request import Request, parse_targets
from rcil_export.run import run_export

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
    assert set(exported.files) == {"model.onnx", "report.html", "report.json", "model_card.md"}
    assert leftovers(out) == []
    document = json.loads((out / "report.json").read_text())
    assert document["ok"] is True
    titles = {item["key"]: item["passed"] for result in document["results"] for item in result["items"]}
    assert titles["graph"] and titles["parameters"] and titles["macs"] and titles["error"] and titles["agreement"]
    assert "<img" in (out / "report.html").read_text()
    stages = {stage["name"]: stage for stage in document["stages"]}
    assert {"reading", "conversion", "checks", "checks / outputs", "checks / certificate / latency"} <= stages.keys()
    assert stages["checks"]["seconds"] >= stages["checks / layers"]["seconds"] > 0
    assert [stage.name for stage in exported.stages] == list(stages)
    file = read_onnx(out / "model.onnx")
    assert file.metadata.architecture.folded
    assert file.metadata.lineage[-1].parent_sha256 == sha256_of(checkpoint)
    report = json.loads((out / "report.json").read_text())
    assert report["sha256"] == {"checkpoint": sha256_of(checkpoint), "model.onnx": sha256_of(out / "model.onnx")}
    assert any("checking" in line for line in said)


def test_the_same_request_gives_the_same_graph(checkpoint, tmp_path):
    first, second = (
        run_export(Request(checkpoint, tmp_path / name, INTERFACE, rounds=0)).files["model.onnx"] for name in "ab"
    )
    assert first.read_bytes() == second.read_bytes()


def wrong_fold(model):
    folded, report = fold(model)
    folded.backbone.stages[2][0].conv1[0].weight.data *= 1.001
    return folded, report


def test_a_wrong_fold_leaves_a_report_and_no_model(checkpoint, tmp_path, monkeypatch):
    monkeypatch.setattr(convert_module, "fold", wrong_fold)
    out = tmp_path / "out"
    exported = run_export(Request(checkpoint, out, INTERFACE, rounds=0))
    assert not exported.ok
    assert sorted(path.name for path in out.iterdir()) == ["report.failed.html", "report.failed.json"]
    assert json.loads((out / "report.failed.json").read_text())["ok"] is False
    failed = [item.key for result in exported.results for item in result.items if item.passed is False]
    assert failed == ["layers", "weights"]
    layers = next(result for result in exported.results if result.key == "bisect")
    assert "backbone.stages.2.0.conv1" in layers.items[0].measured


def test_a_failed_export_leaves_the_older_one_with_its_own_report(checkpoint, tmp_path, monkeypatch):
    out = tmp_path / "out"
    run_export(Request(checkpoint, out, INTERFACE, rounds=0))
    before = {path.name: path.read_bytes() for path in out.iterdir()}
    monkeypatch.setattr(convert_module, "fold", wrong_fold)
    exported = run_export(Request(checkpoint, out, INTERFACE, rounds=0))
    assert set(exported.files) == {"report.failed.html", "report.failed.json"}
    assert {name: (out / name).read_bytes() for name in before} == before
    assert json.loads((out / "report.json").read_text())["ok"] is True
    monkeypatch.undo()
    run_export(Request(checkpoint, out, INTERFACE, rounds=0))
    assert {path.name for path in out.iterdir()} == set(before), "the failure is no longer the latest word"


def test_an_engine_of_an_earlier_export_does_not_stay_beside_another_model(checkpoint, tmp_path):
    out = tmp_path / "out"
    out.mkdir()
    for name in ("model.engine", "model.engine.json", "notes.txt"):
        (out / name).write_text("of an earlier step")
    run_export(Request(checkpoint, out, INTERFACE, rounds=0))
    assert {path.name for path in out.iterdir()} == {
        "model.onnx",
        "report.html",
        "report.json",
        "model_card.md",
        "notes.txt",
    }


class Shifted(OnnxArtefact):
    """An engine in the place of which the graph itself runs, with one wrong pixel in every `wrong`."""

    wrong = 0

    def run(self, batch):
        outputs = {name: np.array(value) for name, value in super().run(batch).items()}
        if self.wrong:
            outputs["mask"].reshape(-1)[:: self.wrong] ^= 1
        return outputs


@pytest.fixture
def engine(monkeypatch):
    """A machine with a GPU and a TensorRT that copies the graph; call it to choose what the engine gets wrong."""

    def build(source, target, options, listen):
        shutil.copyfile(source, target)
        sidecar = EngineSidecar(
            engine_sha256=sha256_of(target),
            onnx_sha256=sha256_of(source),
            onnx_file=source.name,
            flavour="rtx",
            version="1.0",
            gpus=("sm86",),
            precision=options.precision,
            conv_layers={},
            inputs=(TensorInfo(name="image", dtype="uint8", shape=(1, 48, 64, 3)),),
            outputs=(),
            profile=options.profile,
            metadata={},
        )
        sidecar_path(target).write_text(sidecar.model_dump_json())
        return sidecar

    def opened(path):
        file = read_onnx(path)
        kind = Shifted if path.suffix == ".engine" else OnnxArtefact
        return kind(str(path), file.document, file.metadata, file.interface)

    def choose(wrong=0, gpu="sm86"):
        monkeypatch.setattr(Shifted, "wrong", wrong)
        monkeypatch.setattr(segmenter, "find_gpus", lambda: (Gpu("GPU", gpu),) if gpu else ())

    monkeypatch.setattr(run_module, "build_engine", build)
    monkeypatch.setattr(exportable, "_check_engine", lambda request: None)
    monkeypatch.setattr(run_module, "certify", lambda *_, **__: Result("certificate", "left out", ()))
    monkeypatch.setattr(segmenter, "open_artefact", opened)
    return choose


def engine_result(exported):
    return next(result for result in exported.document["results"] if result["key"] == "engine_outputs")


def engine_item(exported):
    (item,) = next(result for result in exported.results if result.key == "engine_outputs").items
    return item


def test_where_there_is_a_gpu_the_engine_is_compared_before_it_is_published(checkpoint, tmp_path, engine):
    out = tmp_path / "out"
    request = Request(checkpoint, out, INTERFACE, targets=("onnx", "engine"), rounds=0)
    engine(wrong=0)
    exported = run_export(request)
    assert exported.ok
    found = engine_result(exported)
    assert (found["key"], found["first"], found["second"]) == ("engine_outputs", "model.onnx", "model.engine")
    assert found["parts"]["all"]["pixels"] == 3 * 48 * 64 and found["parts"]["all"]["differing"] == 0
    before = {path.name: path.read_bytes() for path in out.iterdir()}
    assert {"model.engine", "model.engine.json"} < set(before)
    engine(wrong=100)
    exported = run_export(request)
    assert not exported.ok and [result.key for result in exported.results if not result.ok] == ["engine_outputs"]
    share = engine_result(exported)["parts"]["all"]["agreement"]
    assert share == pytest.approx(0.99, abs=1e-3)
    assert {name: (out / name).read_bytes() for name in before} == before, "the engine that passed is still there"


@pytest.mark.parametrize(
    ("gpu", "why"), [(None, "there is no GPU here"), ("sm75", "is sm75, and the engine is for sm")]
)
def test_an_engine_that_cannot_run_here_is_told_and_not_judged(checkpoint, tmp_path, engine, gpu, why):
    engine(wrong=100, gpu=gpu)
    exported = run_export(Request(checkpoint, tmp_path / "out", INTERFACE, targets=("onnx", "engine"), rounds=0))
    item = engine_item(exported)
    assert exported.ok and item.passed is None and why in item.measured


def test_an_engine_that_fails_on_the_gpu_is_not_published(checkpoint, tmp_path, engine, monkeypatch):
    def fail(self, batch):
        raise EngineError("model.engine failed on the GPU", "Check the GPU with nvidia-smi.")

    engine()
    monkeypatch.setattr(Shifted, "run", fail)
    exported = run_export(Request(checkpoint, tmp_path / "out", INTERFACE, targets=("onnx", "engine"), rounds=0))
    item = engine_item(exported)
    assert item.passed is False and "failed on the GPU" in item.measured
    assert not (tmp_path / "out" / "model.engine").exists()


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
    with pytest.raises(RcilError, match="cannot write"):
        run_export(Request(checkpoint, tmp_path / "file" / "out", INTERFACE, rounds=0))


def test_targets_are_checked():
    assert parse_targets("onnx") == ("onnx",)
    assert parse_targets("engine") == ("onnx", "engine")
    with pytest.raises(ConfigError, match="unknown target 'plan'"):
        parse_targets("plan")


def test_half_precision_is_what_the_file_says(tmp_path):
    interface = INTERFACE.model_copy(update={"precision": "fp16"})
    save(tmp_path / "step1.safetensors", *described("resnet18", 1, blocks=None))
    exported = run_export(Request(tmp_path / "step1.safetensors", tmp_path / "out", interface, rounds=0))
    assert exported.ok
    file = read_onnx(exported.files["model.onnx"])
    assert file.interface.precision == "fp16"
    kernels = {t.data_type for t in file.document.graph.initializer if len(t.dims) == 4 and t.dims[2] == 3}
    assert kernels == {onnx.TensorProto.FLOAT16}
    assert exported.document["conversion"]["agreement"] >= 0.999


def test_bf16_is_compared_and_its_ranges_are_not_measured(checkpoint, monkeypatch):
    """They are those of fp32, so the pass over the images would be for nothing."""
    monkeypatch.setattr(convert_module, "measure_ranges", lambda *_: pytest.fail("a pass for nothing"))
    model, metadata = load(checkpoint)
    interface = INTERFACE.model_copy(update={"precision": "bf16", "opset": 22})
    converted = convert_module.convert(model.eval(), metadata, interface)
    assert description_of(converted.document)[1].precision == "bf16"
    assert converted.notes["calibrated_on"] == 2 and converted.notes["agreement"] > 0.9
