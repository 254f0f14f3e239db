"""Whole folders of every kind, as the command writes them."""

import pytest
from keys import make_keys
from mutants.exported import checkpoint_of, honest
from typer.testing import CliRunner

from rcil_export.cli.app import app
from rcil_export.verification.run import verify

runner = CliRunner()
OPEN = ("--dynamic", "33x33:48x64:96x96", "--batch", "1:2:4")


def export(checkpoint, out, *options):
    done = runner.invoke(app, [str(checkpoint), "-o", str(out), "--rounds", "0", "--target", "onnx", *options])
    assert done.exit_code == 0, done.output
    return {claim.key: claim.status for claim in proved(verify(out, checkpoint)).claims}


def proved(report):
    assert report.ok, report.differences
    return report


@pytest.mark.slow
@pytest.mark.parametrize(
    ("options", "unproved"),
    [
        (("--size", "48x64", "--precision", "fp16"), set()),
        (("--size", "48x64", "--precision", "fp16", "--target", "onnx,engine", "--gpu", "sm86"), set()),
        (("--size", "48x64", "--precision", "bf16"), set()),
        ((*OPEN, "--outputs", "mask,confidence,logits"), set()),
        ((*OPEN, "--target", "onnx,engine", "--gpu", "sm86"), {"engine"}),
        (("--size", "48x64", "--input", "float", "--opset", "20", "--for", "cpu"), set()),
    ],
    ids=["fp16", "fp16 engine", "bf16", "open", "open engine", "float"],
)
def test_segmenters(options, unproved, tmp_path):
    pytest.importorskip("tensorrt_rtx")
    found = export(checkpoint_of("resnet18"), tmp_path / "out", *options)
    assert {key for key, status in found.items() if status != "proved"} == {"numbers"} | unproved


@pytest.mark.slow
def test_classifiers(tmp_path):
    pytest.importorskip("tensorrt_rtx")
    found = export(honest("classifier").checkpoint, tmp_path / "out", "--target", "onnx,engine", "--gpu", "sm86")
    assert {key for key, status in found.items() if status != "proved"} == {"numbers"}
    assert {"rebuild", "twin", "engine", "sidecar", "report", "card"} < set(found)


def test_a_signed_folder(tmp_path):
    private = make_keys(tmp_path).private
    found = export(checkpoint_of("resnet18"), tmp_path / "out", "--size", "48x64", "--sign", str(private))
    assert {key for key, status in found.items() if status != "proved"} == {"numbers", "signature"}
