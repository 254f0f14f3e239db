"""Our use of TensorRT against its real Python bindings, in versions whose libraries cannot be installed here.

The bindings link against libraries of a gigabyte; stubs with the same names stand in for them, since nothing is called.
"""

import json
import os
import re
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
import trt_contract

CHECKER = Path(trt_contract.__file__)
WHEELS = [
    *(f"tensorrt-cu12-bindings=={version}" for version in ("10.3.0", "10.8.0.43", "10.13.3.9", "10.16.1.11")),
    *(f"tensorrt-cu13-bindings=={version}" for version in ("11.0.0.114", "11.4.0.106")),
    *(f"tensorrt-rtx-cu13-bindings=={version}" for version in ("1.4.0.76", "1.5.0.114", "1.6.1.120")),
]
LINKED = re.compile(r"(nvinfer|nvonnxparser|tensorrt)")
CALLED = re.compile(r"(Infer|NvOnnx|PluginRegistry|initLibNvInferPlugins)")


def missing(module, **env):
    done = subprocess.run(
        [sys.executable, CHECKER, module], env={**os.environ, **env}, capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_the_scan_finds_what_is_used():
    targets = {target for target, _, _ in trt_contract.needs()}
    assert {
        "NetworkDefinitionCreationFlag.STRONGLY_TYPED",
        "IExecutionContext.execute_async_v3",
        "IExecutionContext.set_tensor_address",
        "IBuilderConfig.create_timing_cache",
        "IBuilderConfig.progress_monitor",
        "IProgressMonitor.step_complete",
        "IRuntimeConfig.set_runtime_cache",
        "LayerType.DEQUANTIZE",
    } <= targets


def test_installed_tensorrt_rtx_has_all_of_it():
    pytest.importorskip("tensorrt_rtx")
    assert missing("tensorrt_rtx")["problems"] == []


def test_what_is_missing_is_noticed():
    trt = pytest.importorskip("tensorrt_rtx")
    assert "does not exist" in trt_contract.problem(trt, "IExecutionContext.execute_async_v4", 1, (), rtx=True)
    assert "called with 2 arguments" in trt_contract.problem(trt, "IExecutionContext.execute_async_v3", 2, (), rtx=True)
    assert "['ignore']" in trt_contract.problem(trt, "IBuilderConfig.set_timing_cache", 2, ("ignore",), rtx=True)
    assert trt_contract.problem(trt, "IBuilderConfig.set_timing_cache", 2, ("ignore_mismatch",), rtx=True) is None


@pytest.mark.slow
@pytest.mark.parametrize("wheel", WHEELS)
def test_other_versions_have_all_of_it(wheel, tmp_path):
    compiler, readelf = shutil.which("cc"), shutil.which("readelf")
    if compiler is None or readelf is None:
        pytest.skip("the stubs need a C compiler and readelf")
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "-d", str(tmp_path), wheel]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        pytest.skip(f"{wheel} cannot be downloaded: {done.stderr.strip().splitlines()[-1:]}")
    (archive,) = tmp_path.glob("*.whl")
    with zipfile.ZipFile(archive) as file:
        file.extractall(tmp_path / "bindings")
    (library,) = (tmp_path / "bindings").glob("*_bindings/tensorrt*.so")
    make_stubs(library, tmp_path / "stubs", compiler, readelf)
    found = missing(library.parent.name, PYTHONPATH=str(tmp_path / "bindings"), LD_LIBRARY_PATH=str(tmp_path / "stubs"))
    assert found["version"].removesuffix(".post1") in wheel
    assert found["problems"] == []


def make_stubs(library, folder, compiler, readelf):
    """Libraries with the names that `library` links against, and with the functions that it takes from them."""
    folder.mkdir()
    linked = subprocess.run([readelf, "-d", library], capture_output=True, text=True, check=True).stdout
    symbols = subprocess.run([readelf, "-Ws", "--dyn-syms", library], capture_output=True, text=True, check=True).stdout
    undefined = {line.split()[7].split("@")[0] for line in symbols.splitlines() if " UND " in line and line.split()[7:]}
    source = folder / "stub.c"
    source.write_text(
        "".join(f"void *{name}(void) {{ return 0; }}\n" for name in sorted(undefined) if CALLED.search(name))
    )
    for name in re.findall(r"NEEDED.*\[(.*)\]", linked):
        if LINKED.search(name):
            subprocess.run(
                [compiler, "-shared", "-fPIC", f"-Wl,-soname,{name}", "-o", folder / name, source], check=True
            )
