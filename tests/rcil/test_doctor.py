import json
import sys

import pytest
from typer.testing import CliRunner

from rcil import doctor
from rcil.cli import app
from rcil.doctor import Probe, examine
from rcil.doctor_runtimes import Outcome


def finding(name):
    return {found.name: found for found in examine()}[name]


def test_what_is_here_is_tried():
    found = {finding.name: finding for finding in examine()}
    assert found["torch"].state == found["ONNX Runtime, CPU"].state == "works"
    assert "2 frames of H.264" in found["video"].detail
    assert "builder started, builds without a GPU" in found["TensorRT-RTX"].detail


@pytest.fixture
def no_runtimes(monkeypatch):
    """Leaves out what takes processes of its own."""
    monkeypatch.setattr(doctor, "_providers", lambda: iter(()))
    monkeypatch.setattr(doctor, "_tensorrt", lambda: iter(()))


def test_what_is_missing_has_a_remedy(monkeypatch, no_runtimes):
    monkeypatch.setitem(sys.modules, "av", None)  # importing it raises ModuleNotFoundError
    found = finding("video")
    assert (found.state, found.remedy) == ("missing", "pip install 'rcil[serve]'")
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    assert finding("GPU").state == "missing"
    monkeypatch.setenv("COLUMNS", "200")
    assert "rcil[serve]" in CliRunner().invoke(app, ["doctor"]).output  # no markup


def test_what_fails_is_broken_and_stops_nothing(monkeypatch, no_runtimes):
    def fail(_):
        raise OSError("libsomething.so: cannot open\nand more")

    monkeypatch.setattr(doctor, "PROBES", (Probe("export", "a", "json", "do", fail), doctor.PROBES[0]))
    *_, works, broken = examine()
    assert (broken.state, broken.detail) == ("broken", "libsomething.so: cannot open")
    assert works.state == "works"


def test_a_package_inside_a_missing_one_is_missing_too(monkeypatch, no_runtimes):
    monkeypatch.setattr(doctor, "PROBES", (Probe("export", "a", "no_such.part", "do", str),))
    assert finding("a").state == "missing"


def test_a_folder_that_is_gone_is_no_traceback(monkeypatch, tmp_path, no_runtimes):
    monkeypatch.setattr(doctor, "PROBES", ())
    (tmp_path / "gone").mkdir()
    monkeypatch.chdir(tmp_path / "gone")
    (tmp_path / "gone").rmdir()
    assert "free space unknown" in finding("size").detail


def test_every_gpu_computes(monkeypatch):
    import torch

    used = []
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda index: f"Card {index}")
    monkeypatch.setattr(torch.version, "cuda", "13.0")
    monkeypatch.setattr(torch, "device", lambda kind, index: used.append((kind, index)) or "cpu")
    assert doctor._cuda(torch) == "CUDA 13.0; computed on cuda:0 Card 0, cuda:1 Card 1"
    assert used == [("cuda", 0), ("cuda", 1)]
    monkeypatch.setattr(torch.nn.Conv2d, "forward", lambda *_: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        doctor._cuda(torch)


def test_providers_are_reported_by_what_started(monkeypatch):
    outcomes = {
        "CUDAExecutionProvider": Outcome("broken", "listed, but did not start: libcudnn.so.9: cannot open"),
        "CPUExecutionProvider": Outcome("works", "1.2"),
    }
    monkeypatch.setattr("onnxruntime.get_available_providers", lambda: list(outcomes))
    monkeypatch.setattr(doctor, "attempt", lambda kind, name: outcomes[name])
    cuda, cpu = doctor._providers()
    assert (cuda.name, cuda.state) == ("ONNX Runtime, CUDA", "broken")
    assert "libcudnn" in cuda.detail and "onnxruntime-gpu[cuda,cudnn]" in cuda.remedy
    assert (cpu.name, cpu.state, cpu.detail, cpu.remedy) == ("ONNX Runtime, CPU", "works", "1.2", "")
    del outcomes["CUDAExecutionProvider"]
    _, cuda = doctor._providers()
    assert (cuda.state, cuda.remedy) == ("missing", doctor.GPU)
    monkeypatch.setitem(sys.modules, "onnxruntime", None)
    (found,) = doctor._providers()
    assert (found.state, found.remedy) == ("missing", doctor.CPU)


def test_tensorrt_that_builds_but_has_no_gpu_to_run_on(monkeypatch):
    monkeypatch.setattr(doctor, "FLAVOURS", (("json", "TensorRT-RTX", "get it"), ("no_such", "TensorRT", "get this")))
    outcomes = {"builder": Outcome("works", "1.7"), "runtime": Outcome("missing", "no driver")}
    monkeypatch.setattr(doctor, "attempt", lambda kind, name: outcomes[kind])
    builder, runtime, other = doctor._tensorrt()
    assert (builder.state, builder.remedy) == ("works", "")
    assert (runtime.name, runtime.state, runtime.remedy) == ("TensorRT-RTX, running engines", "missing", doctor.DRIVER)
    assert (other.name, other.state, other.remedy) == ("TensorRT", "missing", "get this")


@pytest.mark.parametrize("options", [[], ["--json"]])
def test_command(options):
    result = CliRunner().invoke(app, ["doctor", *options])
    assert result.exit_code == 0
    if options:
        assert {found["state"] for found in json.loads(result.output)["findings"]} <= {"works", "missing", "broken"}
    else:
        assert "What works here" in result.output
