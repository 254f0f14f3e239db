import json
import sys

import pytest
from typer.testing import CliRunner

from rcil import doctor
from rcil.cli import app
from rcil.doctor import Probe, examine


def finding(name):
    return {found.name: found for found in examine()}[name]


def test_what_is_here_is_tried():
    assert finding("torch").state == "works"
    assert "CPU" in finding("ONNX Runtime").detail
    assert "2 frames of H.264" in finding("video").detail
    assert "without a GPU" in finding("TensorRT-RTX").detail


def test_what_is_missing_has_a_remedy(monkeypatch):
    monkeypatch.setitem(sys.modules, "av", None)  # importing it raises ModuleNotFoundError
    found = finding("video")
    assert (found.state, found.remedy) == ("missing", "pip install 'rcil[serve]'")
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    assert finding("GPU").state == "missing"
    monkeypatch.setenv("COLUMNS", "200")
    assert "rcil[serve]" in CliRunner().invoke(app, ["doctor"]).output  # no markup


def test_what_fails_is_broken_and_stops_nothing(monkeypatch):
    def fail(_):
        raise OSError("libsomething.so: cannot open\nand more")

    monkeypatch.setattr(doctor, "PROBES", (Probe("export", "a", "json", "do", fail), *doctor.PROBES[:1]))
    *_, broken, works = examine()
    assert (broken.state, broken.detail) == ("broken", "libsomething.so: cannot open")
    assert works.state == "works"


@pytest.mark.parametrize("options", [[], ["--json"]])
def test_command(options):
    result = CliRunner().invoke(app, ["doctor", *options])
    assert result.exit_code == 0
    if options:
        assert {found["state"] for found in json.loads(result.output)["findings"]} <= {"works", "missing", "broken"}
    else:
        assert "What works here" in result.output
