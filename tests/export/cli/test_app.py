import json
import subprocess
import sys

import pytest
from commands import call
from exports import described
from typer.testing import CliRunner

from rcil.checkpoint.file import save
from rcil.core.errors import ConfigError
from rcil.model.header import read_header
from rcil.model.metadata import IMAGENET_MEAN, IMAGENET_STD
from rcil_export.cli.app import app
from rcil_export.graph.onnx_file import read_onnx

runner = CliRunner()


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory):
    model, metadata = described("resnet18", 1)
    path = tmp_path_factory.mktemp("cli") / "step1.safetensors"
    save(path, model, metadata)
    return path


def test_a_file_alone_means_export(checkpoint, tmp_path):
    command = [sys.executable, "-m", "rcil_export", checkpoint, "-o", tmp_path / "out", "--size", "48x64"]
    done = subprocess.run([*command, "--rounds", "0", "--target", "onnx"], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "out" / "model.onnx").is_file()
    assert "pass  Parameters" in done.stdout


def test_options_may_come_first(checkpoint, tmp_path):
    arguments = [
        "-o",
        str(tmp_path / "out"),
        "--size",
        "48x64",
        "--target",
        "onnx",
        "--rounds",
        "0",
        "--json",
        str(checkpoint),
    ]
    result = runner.invoke(app, arguments)
    assert result.exit_code == 0, result.output
    assert json.loads(result.stdout)["ok"] is True


@pytest.mark.parametrize("arguments", [["--help"], ["export", "--help"], ["check", "--help"], ["bench", "--help"]])
def test_help_has_examples(arguments):
    result = runner.invoke(app, arguments)
    assert result.exit_code == 0
    assert "Example" in result.stdout


def test_stage_by_stage(checkpoint, tmp_path):
    graph = tmp_path / "model.onnx"
    assert runner.invoke(app, ["onnx", str(checkpoint), "-o", str(graph), "--size", "48x64"]).exit_code == 0
    shown = runner.invoke(app, ["inspect", str(graph), "--json"])
    document, classes = json.loads(shown.stdout), read_header(checkpoint).metadata.classes
    assert document["classes"] == {"background": 0, "a": 0, "b": 0, "new1": 1}
    assert document["colours"] == {c.name: list(c.colour) for c in classes}
    assert (document["mean"], document["std"]) == (list(IMAGENET_MEAN), list(IMAGENET_STD))
    graph.rename(tmp_path / "model.ONNX")
    text = runner.invoke(app, ["inspect", str(tmp_path / "model.ONNX")]).stdout
    (tmp_path / "model.ONNX").rename(graph)
    assert "mean           0.485, 0.456, 0.406" in text and f"new1 {list(classes[-1].colour)}" in text
    page = tmp_path / "check.html"
    checked = runner.invoke(app, ["check", str(checkpoint), str(graph), "--bisect", "--html", str(page)])
    assert checked.exit_code == 0, checked.output
    assert "layers agree" in checked.stdout
    assert page.is_file()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["-o", "x", "--size", "48"], "'48' is not a size"),
        (["-o", "x", "--precision", "fp8"], "unknown precision 'fp8'"),
        (["-o", "x", "--for", "gpu"], "unknown runtime 'gpu'"),
        (["-o", "x", "--for", "cpu", "--target", "onnx,engine"], "no engine is built from that form"),
        (["-o", "x", "--outputs", "masks"], "unknown output 'masks'"),
        (["-o", "x", "--opset", "12"], "opset 12 cannot be written"),
        (["-o", "x", "--target", "plan"], "unknown target 'plan'"),
        (["-o", "x", "--limits", "agree=1"], "unknown limit 'agree'"),
    ],
)
def test_wrong_options_are_named(checkpoint, arguments, message, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    done = call("rcil-export", str(checkpoint), *arguments)
    assert done.code == 2
    assert message in done.err
    assert "Traceback" not in done.err
    assert list(tmp_path.iterdir()) == []


def test_a_difference_is_a_failure_with_a_layer(checkpoint, tmp_path):
    from rcil.checkpoint.file import load

    model, metadata = load(checkpoint)
    model.backbone.stages[1][0].conv2.old.weight.data *= 1.01
    save(tmp_path / "other.safetensors", model, metadata)
    done = call("rcil-export check", str(checkpoint), str(tmp_path / "other.safetensors"), "--bisect")
    assert done.code == 5
    assert "backbone.stages.1.0.conv2" in done.out
    assert "differs from" in done.err


def test_a_form_is_chosen_alike_by_both_commands(checkpoint, tmp_path):
    """`--for` of `onnx` and `export`; no engine is built from the form for CPUs, and the default is right anywhere."""
    for runtime in ("any", "cpu"):
        path = tmp_path / f"{runtime}.onnx"
        options = ["--size", "32x48", *(["--for", "cpu"] if runtime == "cpu" else [])]
        assert runner.invoke(app, ["onnx", str(checkpoint), "-o", str(path), *options]).exit_code == 0
        assert read_onnx(path).interface.runtime == runtime
        alone = ["--rounds", "0", "--target", "onnx", *options]
        done = runner.invoke(app, ["export", str(checkpoint), "-o", str(tmp_path / runtime), *alone])
        assert done.exit_code == 0, done.output
        assert (tmp_path / runtime / "model.onnx").read_bytes() == path.read_bytes()
    refused = runner.invoke(app, ["engine", str(tmp_path / "cpu.onnx"), "-o", str(tmp_path / "m.engine")])
    assert isinstance(refused.exception, ConfigError) and "is written for CPUs" in refused.exception.message
