import ctypes
import sys

import pytest
import torch

from rcil.core.device_names import check_device_name
from rcil.core.errors import ConfigError
from rcil.hardware import devices
from rcil.hardware.devices import choose_device, device_notices, driver_gpus

GPU = torch.device("cuda", 0)


@pytest.fixture
def gpus(monkeypatch):
    """Makes torch believe in some GPUs."""

    def make(count):
        monkeypatch.setattr(torch.cuda, "is_available", lambda: count > 0)
        monkeypatch.setattr(torch.cuda, "device_count", lambda: count)
        monkeypatch.setattr(torch.cuda, "get_device_name", lambda device: f"Card {device.index}")

    return make


@pytest.mark.parametrize("name", ["auto", "cpu", "cuda", "cuda:0", "cuda:12"])
def test_names_that_are_known(name):
    assert check_device_name(name) == name


@pytest.mark.parametrize("name", ["gpu", "cuda:", "cuda:-1", "cuda:x", "cuda:0 ", "CUDA", ""])
def test_names_that_are_not(name):
    with pytest.raises(ConfigError, match=f"unknown device '{name}'") as error:
        check_device_name(name)
    assert "cuda:0" in error.value.hint


def test_auto_takes_what_is_there(gpus):
    gpus(0)
    assert choose_device() == choose_device("cpu") == torch.device("cpu")
    gpus(2)
    assert choose_device() == choose_device("cuda") == GPU
    assert choose_device("cuda:1") == torch.device("cuda", 1)
    assert choose_device("cpu") == torch.device("cpu")


@pytest.mark.parametrize(("built", "remedy"), [(None, "install a torch build for CUDA"), ("13.0", "rcil doctor")])
def test_no_gpu_at_all(gpus, monkeypatch, built, remedy):
    gpus(0)
    monkeypatch.setattr(torch.version, "cuda", built)
    with pytest.raises(ConfigError, match="device cuda:1: torch finds no GPU here") as error:
        choose_device("cuda:1")
    assert "--device cpu" in error.value.hint and remedy in error.value.hint


@pytest.mark.parametrize(
    ("count", "there"), [(1, "There is 1 GPU, cuda:0."), (2, "There are 2 GPUs, cuda:0 to cuda:1.")]
)
def test_a_gpu_too_many(gpus, count, there):
    gpus(count)
    with pytest.raises(ConfigError, match="cuda:3: this GPU does not exist") as error:
        choose_device("cuda:3")
    assert error.value.hint == there


def test_a_single_gpu_is_named_and_a_lone_cpu_is_not(gpus, monkeypatch):
    gpus(0)
    monkeypatch.setattr(devices, "driver_gpus", lambda: (0, "none"))
    assert device_notices(torch.device("cpu"), "auto") == []
    gpus(1)
    assert device_notices(GPU, "auto", command=["train", "t.yaml"], batch=8) == ["computing on cuda:0, Card 0"]


def test_a_gpu_that_this_torch_cannot_use_is_mentioned(monkeypatch):
    monkeypatch.setattr(torch.version, "cuda", None)
    monkeypatch.setattr(devices, "driver_gpus", lambda: (1, ""))
    (line,) = device_notices(torch.device("cpu"), "auto")
    assert "built for CPUs only" in line
    assert device_notices(torch.device("cpu"), "cpu") == []


def test_idle_gpus_are_mentioned_with_the_command_that_uses_them(gpus):
    gpus(4)
    command = ["train", "my task.yaml", "-o", "run"]
    _, line = device_notices(GPU, "auto", command=command, batch=24)
    assert line == (
        "4 GPUs are here and one is used; to use 4: torchrun --nproc-per-node 4 -m rcil train 'my task.yaml' -o run"
    )
    _, line = device_notices(GPU, "cuda", command=command, batch=6)
    assert "--nproc-per-node 3 " in line, "a batch of 6 cannot be shared by 4"
    _, line = device_notices(GPU, "auto")
    assert line.endswith("choose another with --device cuda:3")


def test_who_chose_a_gpu_or_uses_all_gets_no_advice(gpus):
    gpus(2)
    for options in ({"asked": "cuda:0"}, {"asked": "auto", "processes": 2}):
        assert len(device_notices(GPU, **options, command=["train"], batch=8)) == 1


class Driver:
    """A driver library with two GPUs that does not start if told so."""

    def __init__(self, status=0, count=2):
        self.status, self.count = status, count

    def cuInit(self, flags):
        return self.status

    def cuDeviceGetCount(self, count):
        count._obj.value = self.count
        return 0


@pytest.mark.parametrize(
    ("driver", "expected"),
    [
        (Driver(), (2, "")),
        (Driver(count=0), (0, "the NVIDIA driver has no GPU")),
        (Driver(status=35), (0, "the NVIDIA driver does not start (CUDA error 35)")),
    ],
)
def test_the_driver_is_asked_itself(monkeypatch, driver, expected):
    monkeypatch.setattr(ctypes, "CDLL", lambda name: driver)
    assert driver_gpus() == expected


def test_no_driver():
    assert driver_gpus("libnothing.so") == (0, "no NVIDIA driver: libnothing.so cannot be loaded")


def test_options_do_not_import_torch():
    import subprocess

    code = "import sys, rcil.cli.options; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
