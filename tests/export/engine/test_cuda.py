"""The calls of the driver, through the real cuda-bindings, to a driver made of host memory."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from rcil.core.errors import MissingDependencyError
from rcil_export.engine import cuda
from rcil_export.engine.cuda import Cuda

SOURCE = Path(__file__).parents[2] / "support" / "fake_libcuda.c"
ALL_CALLS = """
import ctypes, json
from rcil_export.engine.cuda import Cuda, host_array
from rcil_export.engine.errors import EngineError
driver = Cuda(0)
driver.use()
device, host, stream = driver.device_memory(64), driver.pinned_memory(64), driver.stream()
host_array(host, 64)[:] = range(64)
driver.copy_in(device, host, 64, stream)
host_array(host, 64)[:] = 0
driver.copy_out(host, device, 64, stream)
driver.wait(stream)
values = host_array(host, 64).tolist()
driver.begin_capture(stream)
graph = driver.end_capture(stream)
driver.launch(graph, stream)
try:
    driver.device_memory(1 << 40)
    error = None
except EngineError as problem:
    error = [problem.message, problem.hint]
try:
    Cuda(1)
    other = None
except EngineError as problem:
    other = problem.message
driver.destroy_graph(graph)
driver.free_device(device)
driver.free_pinned(host)
driver.destroy_stream(stream)
driver.close()
toolkit = [line.split()[-1] for line in open("/proc/self/maps") if "libcudart" in line]
live = ctypes.CDLL("libcuda.so.1").fake_live()
print(json.dumps({"values": values, "live": live, "error": error, "other": other, "toolkit": toolkit}))
"""


@pytest.fixture(scope="module")
def driver_folder(tmp_path_factory):
    compiler = shutil.which("cc")
    if compiler is None:
        pytest.skip("the stand-in for the driver needs a C compiler")
    folder = tmp_path_factory.mktemp("driver")
    subprocess.run([compiler, "-shared", "-fPIC", "-o", folder / "libcuda.so.1", SOURCE, "-ldl"], check=True)
    return folder


def test_every_call_reaches_the_driver_as_it_should(driver_folder):
    pytest.importorskip("cuda.bindings.driver")
    env = {**os.environ, "LD_LIBRARY_PATH": str(driver_folder)}
    done = subprocess.run([sys.executable, "-c", ALL_CALLS], env=env, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert found["values"] == list(range(64))
    assert found["live"] == 0, "everything was given back"
    assert found["toolkit"] == [], "a driver is enough"
    assert found["error"][0] == "the GPU refused cuMemAlloc: CUDA_ERROR_OUT_OF_MEMORY"
    assert "smaller batch" in found["error"][1]
    assert found["other"] == "the GPU refused cuDeviceGet: CUDA_ERROR_INVALID_DEVICE"


def test_without_a_driver_the_remedy_is_the_driver():
    pytest.importorskip("cuda.bindings.driver")
    code = "from rcil_export.engine.cuda import Cuda\nCuda()"
    env = {key: value for key, value in os.environ.items() if key != "LD_LIBRARY_PATH"}
    done = subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True, timeout=300)
    if done.returncode == 0:
        pytest.skip("this machine has a driver")
    last = done.stderr.strip().splitlines()
    assert "NoGpuError" in "".join(last)
    assert "the NVIDIA driver cannot be loaded" in done.stderr
    assert "a CUDA toolkit is not needed" in done.stderr


def test_without_the_package_the_pip_line_is_named(monkeypatch):
    monkeypatch.setattr(cuda, "PACKAGE", "cuda.bindings.no_such_module")
    with pytest.raises(MissingDependencyError, match=r"cuda-bindings(.|\n)*pip install cuda-bindings"):
        Cuda()


def test_a_package_whose_libraries_are_missing(monkeypatch):
    def fail(name):
        raise OSError("libstdc++.so.6: cannot open shared object file")

    monkeypatch.setattr(cuda.importlib, "import_module", fail)
    with pytest.raises(MissingDependencyError, match="libstdc"):
        Cuda()
