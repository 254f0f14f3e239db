"""Compare GPU results with those of the CPU: one model runs in every runtime that starts on this machine.

A small network is exported once per precision. Its masks on ONNX Runtime's CPU provider are the reference for the CUDA
and TensorRT providers and for TensorRT engines of both flavours; all of them are timed, interleaved. One training step
on the GPU is compared with the same step on the CPU. Runtimes that cannot be tested on this machine are listed with the
reason.

Examples:
    python tools/gpu_check.py
    python tools/gpu_check.py --size 512x1024 --rounds 200 --json gpu.json
"""

from __future__ import annotations

import argparse
import contextlib
import json
import platform
import sys
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray

from rcil.core.errors import RcilError
from rcil.model.architecture import Architecture
from rcil.model.metadata import LITE_MEAN, LITE_STD, Metadata, class_table
from rcil.nn import Segmenter, begin_step, build
from rcil_export.convert import convert
from rcil_export.engine.build import EngineOptions, build_engine
from rcil_export.engine.errors import NoGpuError
from rcil_export.engine.flavour import FlavourName, installed
from rcil_export.engine.gpu import find_gpus
from rcil_export.graph.interface import Interface, Precision
from rcil_export.graph.onnx_file import write_onnx
from rcil_export.graph.shapes import InputShape, parse_size
from rcil_export.timing.interleaved import interleaved, percentiles
from rcil_serve.runtime.backends import open_backend

MIN_AGREEMENT: dict[Precision, float] = {"fp32": 0.999, "fp16": 0.99}
"""Minimum share of pixels with the same class as on the CPU. A wrong memory layout gives a share below 0.6."""
MAX_LOSS_ERROR = {"fp32": 1e-3, "bf16": 0.05, "fp16": 0.02}
"""Maximum relative difference of the loss of a training step."""
Image = NDArray[np.uint8]


@dataclass(frozen=True)
class Row:
    """One way to run the model."""

    path: str
    right: bool | None
    """None if it cannot be tested on this machine."""
    found: str
    milliseconds: float | None = None


def network() -> tuple[Segmenter, Metadata]:
    """EfficientNet-lite0 with random weights after one continual step, with recalibrated norms."""
    torch.manual_seed(0)
    names = [["background", "road", "building"], ["forklift"]]
    model = build(Architecture(backbone="efficientnet_lite0", head_width=64), names[:1])
    with torch.no_grad():
        model.train()(torch.randn(4, 3, 96, 96))
    model = begin_step(model.eval(), names[1], rows="random").eval()
    described = Metadata(architecture=model.arch, classes=class_table(names), step=1, mean=LITE_MEAN, std=LITE_STD)
    return model, described


def photographs(count: int, size: tuple[int, int]) -> list[Image]:
    """RGB [1, H, W, 3] with large shapes and fine grain."""
    random = np.random.default_rng(0)
    coarse = random.integers(0, 256, (count, 5, 7, 3)).astype(np.float32)
    wide = coarse.repeat(-(-size[0] // 5), 1).repeat(-(-size[1] // 7), 2)[:, : size[0], : size[1]]
    images = np.clip(wide + random.normal(0, 20, wide.shape), 0, 255).astype(np.uint8)
    return [image[None] for image in images]


def ways(folder: Path, graphs: dict[Precision, Path]) -> Iterator[tuple[str, Precision, Callable[[], Any]]]:
    """Every way to run the model: its name, its precision, and a function that opens it."""
    for precision, path in graphs.items():
        for device, title in (("cpu", "CPU"), ("cuda", "CUDA"), ("tensorrt", "TensorRT")):
            yield f"ONNX Runtime, {title}, {precision}", precision, lambda p=path, d=device: open_backend(p, d)
        flavours: tuple[FlavourName, ...] = ("rtx", "classic")
        for flavour in flavours:
            title = {"rtx": "TensorRT-RTX engine", "classic": "TensorRT engine"}[flavour]
            yield (
                f"{title}, {precision}",
                precision,
                lambda f=flavour, p=precision, g=path: open_engine(f, p, g, folder / f"{f}-{p}.engine"),
            )


def open_engine(flavour: FlavourName, precision: Precision, graph: Path, engine: Path) -> Any:
    gpus = tuple(gpu.capability for gpu in find_gpus()[:1])
    if not gpus:
        raise NoGpuError("no NVIDIA GPU with a driver was found", "Run this on the machine with the GPU.")
    build_engine(graph, engine, EngineOptions(precision=precision, flavour=flavour, gpus=gpus))
    return open_backend(engine, "cuda")


def run_all(graphs: dict[Precision, Path], folder: Path, images: list[Image], rounds: int) -> list[Row]:
    """Compare every way with the CPU, then time the available ones, interleaved."""
    rows: dict[str, Row] = {}
    with contextlib.ExitStack() as stack:
        runs: dict[str, Callable[[], object]] = {}
        reference: list[NDArray[Any]] = []
        for name, precision, open_it in ways(folder, graphs):
            try:
                backend = open_it()
                stack.callback(backend.close)
                masks = [backend.run(image).mask for image in images]
            except RcilError as error:
                rows[name] = Row(name, None, f"not available: {error.message}")
                continue
            reference = reference or masks
            agreement = float(np.mean([(a == b).mean() for a, b in zip(masks, reference, strict=True)]))
            rows[name] = Row(name, agreement >= MIN_AGREEMENT[precision], f"{agreement:.3%} of pixels as on the CPU")
            runs[name] = lambda b=backend: b.run(images[0])
        times = interleaved(runs, rounds, warmup=3)
    return [
        Row(row.path, row.right, row.found, 1000 * percentiles(times[name])[0] if name in times else None)
        for name, row in rows.items()
    ]


def training_rows(model: Segmenter) -> list[Row]:
    """The loss of one forward and backward pass on the GPU, in three precisions, against the CPU."""
    if not torch.cuda.is_available():
        return [Row("training step, torch, CUDA", None, "not available: torch sees no CUDA device")]
    torch.manual_seed(1)
    images, labels = torch.randn(2, 3, 96, 96), torch.randint(0, len(model.names), (2, 96, 96))
    expected = float(step_loss(model, images, labels, "cpu", None))
    rows = []
    for name, dtype in (("fp32", None), ("bf16", torch.bfloat16), ("fp16", torch.float16)):
        found = float(step_loss(model, images, labels, "cuda", dtype))
        error = abs(found - expected) / abs(expected)
        text = f"loss {found:.5f}, on the CPU {expected:.5f}"
        rows.append(Row(f"training step, torch, CUDA, {name}", error <= MAX_LOSS_ERROR[name], text))
    return rows


def step_loss(
    model: Segmenter, images: torch.Tensor, labels: torch.Tensor, device: str, dtype: torch.dtype | None
) -> torch.Tensor:
    network = model.to(device).eval()  # without random draws
    with torch.autocast(device, dtype or torch.bfloat16, enabled=dtype is not None):
        logits = network(images.to(device))
    loss = F.cross_entropy(logits.float(), labels.to(device))
    loss.backward()
    model.to("cpu")
    return loss.detach().cpu()


def facts() -> dict[str, str]:
    """Describe this machine, for the reader of the table."""
    import onnxruntime

    gpus = ", ".join(f"{gpu.name} ({gpu.capability})" for gpu in find_gpus()) or "none"
    engines = ", ".join(flavour.title for flavour in installed().values()) or "none"
    return {
        "GPUs": gpus,
        "Python": platform.python_version(),
        "torch": torch.__version__,
        "ONNX Runtime": onnxruntime.__version__,
        "TensorRT": engines,
    }


def as_table(about: dict[str, str], rows: list[Row]) -> str:
    """Markdown, to be pasted into an issue."""
    words = {True: "right", False: "WRONG", None: "-"}
    lines = [f"- {name}: {value}" for name, value in about.items()]
    lines += ["", "| path | masks | found | median ms |", "|---|---|---|---|"]
    for row in rows:
        time = "" if row.milliseconds is None else f"{row.milliseconds:.2f}"
        lines.append(f"| {row.path} | {words[row.right]} | {row.found} | {time} |")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--size", default="256x256", help="height x width of the images")
    parser.add_argument("--rounds", type=int, default=50, help="timed runs of each path")
    parser.add_argument("--json", type=Path, help="also write the table to this file")
    options = parser.parse_args()
    model, metadata = network()
    size = parse_size(options.size)
    with tempfile.TemporaryDirectory(prefix="rcil-gpu-check-") as name:
        folder = Path(name)
        graphs: dict[Precision, Path] = {}
        for precision in MIN_AGREEMENT:
            interface = Interface(shape=InputShape.of(*size), precision=precision)
            graphs[precision] = folder / f"{precision}.onnx"
            write_onnx(graphs[precision], convert(model, metadata, interface).document)
        rows = run_all(graphs, folder, photographs(4, size), options.rounds) + training_rows(model)
    about = facts()
    print(as_table(about, rows))
    if options.json:
        document = {"machine": about, "rows": [asdict(row) for row in rows]}
        options.json.write_text(json.dumps(document, indent=2) + "\n", encoding="utf-8")
    wrong = [row.path for row in rows if row.right is False]
    if wrong:
        sys.exit(f"wrong: {'; '.join(wrong)}")


if __name__ == "__main__":
    main()
