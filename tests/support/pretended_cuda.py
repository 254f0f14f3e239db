"""ONNX Runtime's real CUDA provider on a machine without a GPU.

The provider of the onnxruntime-gpu wheel starts, takes a graph, places its nodes and optimises it without computing
anything. All that it needs are libraries with CUDA's names. Those built here hold every function that the provider asks
for; memory is the computer's, and whatever would launch a kernel does nothing. So graphs can be loaded, not run.

As a script it prints the kernel table of the provider: `python tests/support/pretended_cuda.py > cuda_kernels.json`.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path
from typing import Any

import onnxruntime

from rcil_export.graph import lint

CACHE = "RCIL_ORT_GPU"
"""Environment variable: a folder that keeps the wheel, 250 MB, from one run to the next."""
TOOLS = ("gcc", "nm")
KERNEL_OPS = sorted(
    {*lint.LAYER_OPS, *lint.PRE_AND_POSTPROCESSING, *lint.VARYING, *lint.BRANCHES, *lint.QUANTISED}.union(
        *lint.BY_OUTPUT.values()
    )
)
"""All that an exported graph may hold."""
RUNTIME = r"""
#include <stdlib.h>
#include <string.h>
static int give(void **p, size_t n) { *p = calloc(1, n ? n : 1); return 0; }
int cudaMalloc(void **p, size_t n) { return give(p, n); }
int cudaMallocFromPoolAsync(void **p, size_t n) { return give(p, n); }
int cudaMallocHost(void **p, size_t n) { return give(p, n); }
int cudaHostAlloc(void **p, size_t n) { return give(p, n); }
int cudaFree(void *p) { free(p); return 0; }
int cudaFreeHost(void *p) { free(p); return 0; }
int cudaFreeAsync(void *p) { free(p); return 0; }
int cudaMemcpy(void *to, const void *from, size_t n) { memcpy(to, from, n); return 0; }
int cudaMemcpyAsync(void *to, const void *from, size_t n) { memcpy(to, from, n); return 0; }
int cudaMemset(void *to, int value, size_t n) { memset(to, value, n); return 0; }
int cudaMemsetAsync(void *to, int value, size_t n) { memset(to, value, n); return 0; }
int cudaMemGetInfo(size_t *free_, size_t *all) { *free_ = *all = (size_t)8 << 30; return 0; }
int cudaGetDevice(int *device) { *device = 0; return 0; }
int cudaGetDeviceCount(int *count) { *count = 1; return 0; }
int cudaDriverGetVersion(int *version) { *version = 13000; return 0; }
int cudaRuntimeGetVersion(int *version) { *version = 13000; return 0; }
int cudaDeviceGetAttribute(int *value, int what) { *value = what == 75 ? 8 : what == 76 ? 6 : 1; return 0; }
int cudaStreamIsCapturing(void *stream, int *status) { *status = 0; return 0; }
int cudaStreamCreate(void **stream) { *stream = (void *)16; return 0; }
int cudaStreamCreateWithFlags(void **stream) { *stream = (void *)16; return 0; }
int cudaEventCreate(void **event) { *event = (void *)16; return 0; }
int cudaEventCreateWithFlags(void **event) { *event = (void *)16; return 0; }
const char *cudaGetErrorName(int error) { return "none"; }
const char *cudaGetErrorString(int error) { return "none"; }
void **__cudaRegisterFatBinary(void *binary) { static void *handle[4]; return handle; }
/* The layout of CUDA 13's cudaDeviceProp up to the compute capability, 8.6. */
int cudaGetDeviceProperties(char *p) {
  memset(p, 0, 700);
  strcpy(p, "pretended");
  *(size_t *)(p + 288) = (size_t)8 << 30;
  *(int *)(p + 308) = 32;
  *(int *)(p + 320) = 1024;
  *(int *)(p + 360) = 8;
  *(int *)(p + 364) = 6;
  return 0;
}
"""
REGISTRY = """
static long nothing(void) { return 0; }
void *getPluginRegistry(void) {
  static void *table[64], *object[1];
  for (int i = 0; i < 64; i++) table[i] = (void *)nothing;
  object[0] = table;
  return object;
}
"""
ANSWERS = {"cudnnGetVersion": 92000, "cudnnGetCudartVersion": 13000, "getInferLibVersion": 101600}
HANDLES = {"cublasCreate_v2", "cublasLtCreate", "cudnnCreate"}


def gpu_wheel(folder: Path) -> Path | None:
    """The onnxruntime-gpu wheel of the installed version, unpacked into `folder`; None where it cannot be had."""
    kept = Path(os.environ.get(CACHE) or folder / "download")
    name = f"onnxruntime-gpu=={onnxruntime.__version__}"
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--dest", str(kept), name]
    found = sorted(kept.glob(f"onnxruntime_gpu-{onnxruntime.__version__}-*.whl"))
    if not found and subprocess.run(command, capture_output=True, check=False).returncode != 0:
        return None
    (wheel,) = sorted(kept.glob(f"onnxruntime_gpu-{onnxruntime.__version__}-*.whl"))
    site = folder / "site"
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(site)
    return site


def pretended_libraries(site: Path, folder: Path) -> Path:
    """Libraries with the names and functions of CUDA, cuBLAS, cuDNN and TensorRT that the providers ask for."""
    folder.mkdir()
    functions: dict[str, set[str]] = {"libcurand.so.10": set(), "libcuda.so.1": set(), "libcudnn.so.9": set()}
    for name in ("cuda", "tensorrt"):
        library = site / "onnxruntime" / "capi" / f"libonnxruntime_providers_{name}.so"
        listed = subprocess.run(["nm", "-D", "--undefined-only", library], capture_output=True, text=True, check=True)
        for word in listed.stdout.split():
            function, _, home = word.partition("@")
            if home.startswith("libcu"):
                functions.setdefault(home, set()).add(function)
            elif re.fullmatch(r"cu[A-Z]\w+", function):
                functions["libcuda.so.1"].add(function)
            elif re.fullmatch(r"createInfer\w+|getInferLibVersion|getPluginRegistry", function):
                functions.setdefault("libnvinfer.so.10", set()).add(function)
            elif function.startswith("createNvOnnxParser"):
                functions.setdefault("libnvonnxparser.so.10", set()).add(function)
        if name == "cuda":  # it looks cuDNN's functions up by name when it starts
            names = re.findall(rb"\0(cudnn[A-Z]\w+)(?=\0)", library.read_bytes())
            functions["libcudnn.so.9"].update(found.decode() for found in names)
    for home, wanted in functions.items():
        _compile(folder, home, wanted)
    return folder


def _compile(folder: Path, home: str, functions: set[str]) -> None:
    """One library; a function without a body of its own answers 0."""
    text = RUNTIME if "cudart" in home else REGISTRY if "nvinfer" in home else ""
    written = set(re.findall(r"(\w+)\(", text))
    for function in sorted(functions - written):
        if function in HANDLES:
            text += f"int {function}(void **handle) {{ *handle = (void *)16; return 0; }}\n"
        else:
            text += f"unsigned long {function}(void) {{ return {ANSWERS.get(function, 0)}; }}\n"
    source, versions = folder / "source.c", folder / "versions.map"
    source.write_text(text)
    versions.write_text(f"{home} {{ global: *; }};\n")
    flags = ["-shared", "-fPIC", "-w", f"-Wl,-soname,{home}", f"-Wl,--version-script={versions}"]
    subprocess.run(["gcc", *flags, "-o", folder / home, source], check=True)


def run_with(site: Path, program: str, *arguments: str, libraries: Path | None = None) -> dict[str, Any]:
    """The JSON that a program prints under the GPU build of ONNX Runtime; it starts with the repository's packages."""
    root = Path(__file__).parents[2]
    paths = [site, root, root / "export", root / "serve"]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(map(str, paths))}
    environment["LD_LIBRARY_PATH"] = str(libraries) if libraries else ""
    command = [sys.executable, "-c", program, *arguments]
    done = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout) | {"stderr": done.stderr}


TABLE_PROGRAM = """
import json
from onnxruntime.capi import _pybind_state as state
rows = [
    (kernel.op_name, *kernel.version_range, {key: list(types) for key, types in kernel.type_constraints.items()})
    for kernel in state.get_all_opkernel_def()
    if kernel.provider == "CUDAExecutionProvider" and kernel.domain in ("", "ai.onnx")
]
print(json.dumps({"rows": rows}))
"""
NOT_OURS = re.compile("float8|float4|int4|int2|string")
OPEN_END = 2**31 - 1


def kernel_table(site: Path, libraries: Path) -> dict[str, list[dict[str, Any]]]:
    """Versions and types of the CUDA kernels that exported graphs could need; see `cuda_kernels`."""
    found: dict[str, dict[tuple[int, int | None], dict[str, set[str]]]] = {name: {} for name in KERNEL_OPS}
    for name, first, last, types in run_with(site, TABLE_PROGRAM, libraries=libraries)["rows"]:
        if name in found and last >= 16 and first <= 23:
            kernel = found[name].setdefault((first, None if last >= OPEN_END else last), {})
            for key, kinds in types.items():
                names = {kind.removeprefix("tensor(").removesuffix(")") for kind in kinds}
                kernel.setdefault(key, set()).update(kind for kind in names if not NOT_OURS.search(kind))
    return {
        name: [
            {"first": first, "last": last, "types": {key: sorted(kinds[key]) for key in sorted(kinds)}}
            for (first, last), kinds in sorted(kernels.items(), key=lambda entry: entry[0][0])
        ]
        for name, kernels in found.items()
    }


def main() -> None:
    """Print the table as it is stored."""
    assert all(map(shutil.which, TOOLS)), f"this needs {TOOLS}"
    with tempfile.TemporaryDirectory() as folder:
        site = gpu_wheel(Path(folder))
        assert site is not None, "the wheel cannot be downloaded"
        kernels = kernel_table(site, pretended_libraries(site, Path(folder) / "pretended"))
    rows = (
        f'    "{op}": [\n' + ",\n".join(f"      {json.dumps(k)}" for k in ks) + "\n    ]" for op, ks in kernels.items()
    )
    what = (
        "Kernels of the CUDA execution provider for the operators that exported graphs use: for every kernel the first "
        "and last since_version of the operator, and types by type constraint. A kernel whose last is null is open: it "
        "matches since_version = first alone. Written by tests/support/pretended_cuda.py."
    )
    version = onnxruntime.__version__
    body = ",\n".join(rows)
    print(f'{{\n  "what": "{what}",\n  "onnxruntime-gpu": "{version}",\n  "kernels": {{\n{body}\n  }}\n}}')  # noqa: T201


if __name__ == "__main__":
    main()
