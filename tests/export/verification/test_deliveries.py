"""Folders and repositories with one thing wrong, and folds that go wrong."""

import shutil

import pytest
from mutants import DELIVERIES, FOLDS
from mutants.exported import INTERFACES, checkpoint_of

from rcil.checkpoint.file import load_for_inference
from rcil_export import convert as convert_module
from rcil_export.check_files import check_files
from rcil_export.convert import convert, deployed_metadata
from rcil_export.graph import export as graph_export
from rcil_export.graph.onnx_file import write_onnx
from rcil_export.verification.run import verify


def test_honest_deliveries_are_proved(delivered):
    checkpoint = checkpoint_of("resnet18")
    for place in ("folder", "triton"):
        report = verify(delivered / place, checkpoint)
        assert report.ok, report.differences
        assert {claim.status for claim in report.claims if claim.key != "numbers"} == {"proved"}
    folder = verify(delivered / "folder", checkpoint)
    assert {claim.file for claim in folder.claims} == {path.name for path in (delivered / "folder").iterdir()}


@pytest.mark.usefixtures("built_once", "exported_once")
@pytest.mark.parametrize("name", DELIVERIES)
def test_a_spoilt_delivery_is_rejected_by_name(name, delivered, tmp_path):
    spoilt = tmp_path / "spoilt"
    shutil.copytree(delivered / DELIVERIES[name].place, spoilt)
    DELIVERIES[name].change(spoilt)
    report = verify(spoilt, checkpoint_of("resnet18"))
    assert not report.ok
    assert any(DELIVERIES[name].named in difference.where for difference in report.differences), report.differences


def broken_export(broken, path, tmp_path, monkeypatch):
    """A file that was exported with a broken fold and without the lint; both stay as they are."""
    monkeypatch.setattr(convert_module, "fold", broken.instead_of(convert_module.fold))
    monkeypatch.setattr(graph_export, "check_graph", lambda document, interface: None)
    model, metadata = load_for_inference(path)
    interface = INTERFACES["lite" if broken.backbone == "efficientnet_lite0" else "fp32"]
    write_onnx(tmp_path / "model.onnx", convert(model, deployed_metadata(metadata, path), interface).document)
    return tmp_path / "model.onnx"


@pytest.mark.parametrize("still_broken", [False, True], ids=["export", "export and verify"])
@pytest.mark.parametrize("name", FOLDS)
def test_a_broken_fold_is_rejected_by_its_layer(name, still_broken, tmp_path, monkeypatch):
    broken = FOLDS[name]
    path = checkpoint_of(broken.backbone)
    with monkeypatch.context() as patch:
        file = broken_export(broken, path, tmp_path, patch)
        if still_broken:
            report = verify(file, path)
    if not still_broken:
        report = verify(file, path)
    assert not report.ok
    assert any(broken.named in difference.where for difference in report.differences), report.differences


@pytest.mark.slow
@pytest.mark.parametrize("name", FOLDS)
def test_check_rejects_a_broken_fold_by_its_layer(name, tmp_path, monkeypatch):
    broken = FOLDS[name]
    path = checkpoint_of(broken.backbone)
    with monkeypatch.context() as patch:
        file = broken_export(broken, path, tmp_path, patch)
    results, _ = check_files(path, file, max_images=2)
    failed = [item for result in results for item in result.items if item.passed is False]
    assert any(broken.named in f"{item.measured} {item.detail}" for item in failed), failed
