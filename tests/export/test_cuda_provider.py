"""The GPU build of ONNX Runtime on this machine: without CUDA's libraries, and with pretended ones.

The wheel is downloaded (250 MB; `RCIL_ORT_GPU=folder` keeps it), so these tests are slow; without a network they are
skipped. What only a GPU can show is the numbers that its kernels give.
"""

import json
import shutil

import pytest
from cuda_kernels import KERNELS
from precision_graphs import feeds_of, small_graph
from pretended_cuda import CACHE, TOOLS, gpu_wheel, kernel_table, pretended_libraries, run_with
from served import FIXED, write_model

from rcil_export.interface import OPSETS, OUTPUTS
from rcil_export.onnx_file import write_onnx
from rcil_export.precision.half import to_half
from rcil_export.precision.int8 import calibrate, quantise
from rcil_export.precision.ranges import measure_ranges
from rcil_export.providers import CUDA

pytestmark = pytest.mark.slow

PLACED = """
import json, sys
from pathlib import Path
import onnx
import onnxruntime as ort
ort.set_default_logger_severity(4)
found = {}
for path in sorted(Path(sys.argv[1]).glob("*.onnx")):
    options = ort.SessionOptions()
    options.log_severity_level = 4
    options.optimized_model_filepath = str(path.with_suffix(".optimised"))
    options.add_session_config_entry("session.disable_cpu_ep_fallback", "1")
    try:
        ort.InferenceSession(str(path), options, providers=[sys.argv[2]], enable_fallback=0)
        nodes = onnx.load(options.optimized_model_filepath).graph.node
        found[path.stem] = [node.op_type for node in nodes if node.op_type in ("Transpose", "Resize", "ArgMax")]
    except Exception as error:
        found[path.stem] = str(error)
print(json.dumps(found))
"""
OPENED = """
import json, sys
from pathlib import Path
from rcil.errors import RcilError
from rcil.log import listening
from rcil_serve.backends import open_backend
found = {}
with listening(30):
    for device in sys.argv[2:]:
        try:
            found[device] = open_backend(Path(sys.argv[1]), device, 1).device
        except RcilError as error:
            found[device] = f"{error.message} {error.hint}"
print(json.dumps(found))
"""


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    found = gpu_wheel(tmp_path_factory.mktemp("gpu"))
    if found is None:
        pytest.skip(f"the onnxruntime-gpu wheel cannot be downloaded; {CACHE}=folder names one that holds it")
    return found


@pytest.fixture(scope="module")
def libraries(site, tmp_path_factory):
    if not all(map(shutil.which, TOOLS)):
        pytest.skip(f"pretended libraries need {' and '.join(TOOLS)}")
    return pretended_libraries(site, tmp_path_factory.mktemp("libraries") / "pretended")


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    return write_model(tmp_path_factory.mktemp("model") / "m.onnx", FIXED)


def test_the_recorded_table_is_the_providers(site, libraries):
    """If it is not, `python tests/support/pretended_cuda.py` prints the new one."""
    assert kernel_table(site, libraries) == KERNELS


def test_graphs_run_on_cuda_alone(site, libraries, tmp_path):
    for backbone in ("resnet18", "efficientnet_lite0"):
        for opset in range(OPSETS[0], OPSETS[1] + 1):
            write_onnx(tmp_path / f"{backbone}-fp32-{opset}.onnx", small_graph(backbone, opset=opset, outputs=OUTPUTS))
        document = small_graph(backbone)
        ranges = measure_ranges(document, feeds_of(document, 1))
        write_onnx(tmp_path / f"{backbone}-fp16-18.onnx", to_half(document, "fp16", ranges)[0])
        write_onnx(tmp_path / f"{backbone}-bf16-22.onnx", to_half(small_graph(backbone, opset=22), "bf16", None)[0])
    found = run_with(site, PLACED, str(tmp_path), CUDA, libraries=libraries)
    for name, ops in found.items():
        backbone, _, opset = name.partition("-fp")[0], *name.rpartition("-")[1:]
        if name == "stderr":
            continue
        if "bf16" in name:
            assert "Provider type for" in ops  # a node that no provider takes
        elif backbone == "resnet18" and int(opset) >= 22:
            assert "assigned to the default CPU EP" in ops  # MaxPool, see test_cuda_kernels
        else:
            # Planes before and after the optimiser: one Transpose, that of the image.
            assert ops == ["Transpose", "Resize", "ArgMax"], name


def test_int8_leaves_nothing_of_ours_to_the_cpu(site, libraries, tmp_path):
    """ONNX Runtime itself quantises biases, and dequantises them on the CPU; all that the file holds is on CUDA."""
    document = small_graph("resnet18")
    write_onnx(tmp_path / "m.onnx", quantise(document, calibrate(document, feeds_of(document, 1))).without(()))
    program = PLACED.replace('"session.disable_cpu_ep_fallback", "1"', '"session.disable_cpu_ep_fallback", "0"')
    program = program.replace("log_severity_level = 4", "log_severity_level = 0").replace("severity(4)", "severity(0)")
    lines = run_with(site, program, str(tmp_path), CUDA, libraries=libraries)["stderr"].splitlines()
    missing = [line for line in lines if "CUDA kernel not found" in line]
    assert all(line.endswith("_bias_dq") for line in missing)


def test_auto_falls_back_and_a_named_device_does_not(site, model):
    found = run_with(site, OPENED, str(model), "auto", "cuda", "tensorrt", "cpu")
    assert found["auto"] == found["cpu"] == "CPU"
    for device in ("cuda", "tensorrt"):
        assert "does not start: libcuda.so.1" in found[device] and "driver" in found[device]
    warnings = [line for line in found["stderr"].splitlines() if line]
    assert len(warnings) == 1  # and none of ONNX Runtime's own lines
    assert warnings[0].startswith("WARNING: ONNX Runtime's CUDA provider does not start, so the CPU is used: libcuda")


def test_a_library_that_is_missing_is_named(site, libraries, model, tmp_path):
    """The driver alone is there, as on a machine where nobody installed CUDA."""
    shutil.copy(libraries / "libcuda.so.1", tmp_path)
    found = run_with(site, OPENED, str(model), "auto", "cuda", libraries=tmp_path)
    assert found["auto"] == "CPU"
    assert "does not start: the library libcublas" in found["cuda"] and "pip install 'rcil[gpu]'" in found["cuda"]


def test_cuda_is_used_where_it_starts(site, libraries, model, tmp_path):
    found = run_with(site, OPENED, str(model), "auto", "cuda", "cpu", libraries=libraries)
    assert [found[device] for device in ("auto", "cuda", "cpu")] == ["GPU (CUDA)", "GPU (CUDA)", "CPU"]
    assert not found["stderr"]
    cpu = write_model(tmp_path / "cpu.onnx", FIXED, runtime="cpu")
    found = run_with(site, OPENED, str(cpu), "auto", "cuda", libraries=libraries)
    assert found["auto"] == "CPU" and "so the CPU is used" in found["stderr"]
    assert "wrong masks on CUDAExecutionProvider" in found["cuda"] and "--for any" in found["cuda"]


def test_another_tensorrt_is_not_offered(site, libraries, model, tmp_path):
    kept = tmp_path / "kept"
    shutil.copytree(libraries, kept)
    (kept / "libnvinfer.so.10").rename(kept / "libnvinfer.so.9")
    found = run_with(site, OPENED, str(model), "tensorrt", libraries=kept)
    assert "linked to libnvinfer.so.10, which cannot be loaded" in found["tensorrt"], json.dumps(found)
    assert "tensorrt==10.*" in found["tensorrt"] and "--device cuda" in found["tensorrt"]
