import json
from pathlib import Path

import pytest
import torch
from commands import call
from networks import at_step, small_arch
from typer.testing import CliRunner

from rcil.checkpoint.file import load, save
from rcil.core.errors import ConfigError, GateError, RcilError
from rcil.core.files import sha256_of
from rcil.model.metadata import Metadata, class_table
from rcil.nn import Segmenter, fold
from rcil_export import fold_checkpoint as fold_module
from rcil_export.cli.app import app
from rcil_export.fold_checkpoint import FoldCheckError, fold_checkpoint


@pytest.fixture
def source(tmp_path):
    model = at_step(small_arch("resnet50"), 1)
    steps = [list(names) for names in model.classifier.steps]
    path = tmp_path / "step1.safetensors"
    save(path, model, Metadata(architecture=model.arch, classes=class_table(steps), step=1))
    return path


def test_the_folded_file_computes_the_same_and_remembers_where_it_came_from(source, tmp_path):
    target = tmp_path / "deployed.safetensors"
    check = fold_checkpoint(source, target)
    assert check.ok
    assert check.rc_blocks == 20
    assert check.parameters == check.plain_parameters
    folded, metadata = load(target)
    x = torch.randn(1, 3, 65, 65)
    with torch.no_grad():
        before = load(source)[0](x)
        assert (folded(x) - before).abs().max() <= 1e-4 * (before.max() - before.min())
    assert metadata.architecture.folded
    assert [c.step for c in metadata.classes] == [0, 0, 0, 1]
    assert metadata.lineage[-1].parent_sha256 == sha256_of(source)


def test_a_wrong_fold_is_not_written(source, tmp_path, monkeypatch):
    def wrong(model):
        folded, report = fold(model)
        folded.head.project.left.bias.data += 1
        return folded, report

    monkeypatch.setattr(fold_module, "fold", wrong)
    target = tmp_path / "deployed.safetensors"
    with pytest.raises(FoldCheckError, match="changed the logits"):
        fold_checkpoint(source, target)
    assert not target.exists()


def test_a_fold_that_is_wrong_by_too_little_to_be_seen_is_not_written_either(source, tmp_path, monkeypatch):
    def wrong(model):
        folded, report = fold(model)
        folded.head.paths[1][0].weight.data[0, 0, 0, 0] *= 1 + 1e-5
        return folded, report

    monkeypatch.setattr(fold_module, "fold", wrong)
    with pytest.raises(FoldCheckError, match=r"other weights .*: head\.paths\.1\.0\.weight differs by up to"):
        fold_checkpoint(source, tmp_path / "deployed.safetensors")
    assert not (tmp_path / "deployed.safetensors").exists()


def test_folding_twice_is_an_error(source, tmp_path):
    target = tmp_path / "deployed.safetensors"
    fold_checkpoint(source, target)
    with pytest.raises(RcilError, match="folded already"):
        fold_checkpoint(target, tmp_path / "again.safetensors")


def test_a_rejected_checkpoint_is_folded_by_force_only_and_stays_marked(source, tmp_path):
    model, metadata = load(source)
    save(source, model, metadata.model_copy(update={"rejected": "car dropped 12.3 points, limit 5"}))
    target = tmp_path / "deployed.safetensors"
    done = call("rcil-export fold", str(source), "-o", str(target))
    assert done.code == GateError.exit_code
    assert "car dropped 12.3 points, limit 5" in done.err and "--force" in done.err
    assert not target.exists()
    fold_checkpoint(source, target, force=True)
    folded = load(target)[1]
    assert folded.architecture.folded
    assert folded.rejected == "car dropped 12.3 points, limit 5"


def test_the_checkpoint_itself_is_never_replaced(source, tmp_path, monkeypatch):
    before = source.read_bytes()
    (tmp_path / "link.safetensors").symlink_to(source)
    monkeypatch.chdir(source.parent)
    for name in (source, Path(source.name), tmp_path / "link.safetensors"):
        with pytest.raises(ConfigError, match="would replace the checkpoint it is folded from"):
            fold_checkpoint(source, name)
    done = CliRunner().invoke(app, ["onnx", str(source), "-o", str(source), "--size", "32x32"])
    assert isinstance(done.exception, ConfigError)
    assert "would replace the checkpoint it is made from" in done.exception.message
    assert source.read_bytes() == before


def test_command_line(source, tmp_path):
    target = tmp_path / "deployed.safetensors"
    done = call("rcil-export fold", str(source), "-o", str(target))
    assert done.code == 0 and "20 RC blocks folded" in done.out
    document = json.loads(target.with_suffix(".fold.json").read_text())
    assert document["ok"] is True
    assert document["macs"] == document["plain_macs"]
    assert json.loads(call("rcil-export fold", str(source), "-o", str(target), "--json").out) == document


def test_command_line_error(tmp_path):
    done = call("rcil-export fold", str(tmp_path / "none"), "-o", str(tmp_path / "x"))
    assert done.code == 3
    assert "none" in done.err
    assert "Traceback" not in done.err


def test_both_networks_are_compared_where_the_user_says(source, tmp_path, monkeypatch):
    """Convs are computed with all bits of fp32, also on GPUs that would rather not."""
    seen = []

    def look(part, inputs):
        if isinstance(part, Segmenter) and inputs[0].device.type != "meta":  # that one counts the cost
            seen.append((inputs[0].device.type, torch.backends.cudnn.allow_tf32))

    with torch.nn.modules.module.register_module_forward_pre_hook(look):
        fold_checkpoint(source, tmp_path / "folded.safetensors", device="cpu")
        assert set(seen) == {("cpu", False)} and torch.backends.cudnn.allow_tf32
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(ConfigError, match="no GPU"):
        fold_checkpoint(source, tmp_path / "other.safetensors", device="cuda")
    assert not (tmp_path / "other.safetensors").exists()
