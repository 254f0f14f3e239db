"""One version of the code in a process of its own: trains a small network on command, for `train_step.py --against`.

It reads one JSON object per line, `{"step": "joint", "count": 2}`, and answers with the seconds, the processor seconds,
the losses and the billions of operations of these optimisation steps. It uses only functions that have been in `rcil`
for long, so that it also runs with earlier versions of the code. A version with settings of its own for CPUs applies
them as the commands do.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import sys
import time
from collections.abc import Callable
from typing import Any

with contextlib.suppress(ImportError):  # earlier versions have no such settings
    from rcil.hardware.cpu import tune_process

    tune_process()

import numpy as np
import torch
from torch import Tensor, nn

from rcil.methods import StepInfo, make_method
from rcil.model.architecture import Architecture
from rcil.model.metadata import Metadata, class_table
from rcil.nn import begin_step, build, fold

OLD, NEW = 10, 1
NAMES = [f"class {index}" for index in range(OLD + NEW)]


def make_step(kind: str, arguments: argparse.Namespace) -> Callable[[], float]:
    """A function that does one whole optimisation step and returns the loss; `infer` runs an exported network instead.

    Args:
        kind: `joint` (one branch), `first` (RCIL's step 0, two branches) or `later` (a later step of RCIL+).
        arguments: Backbone, crop, batch, layout, and whether to compile the network.
    """
    torch.manual_seed(0)
    if kind == "infer":
        return make_inference(arguments)
    layout = torch.channels_last if arguments.layout == "channels-last" else torch.contiguous_format
    arch = Architecture(backbone=arguments.backbone, norm="batch")
    images = torch.randn(arguments.batch, 3, arguments.crop, arguments.crop).contiguous(memory_format=layout)
    size = arguments.batch, arguments.crop, arguments.crop
    method = make_method({"joint": "joint", "first": "rcil", "later": "rcil-plus"}[kind])
    teacher = None
    if kind == "later":
        before = build(arch, [NAMES[:OLD]]).eval()
        teacher = fold(before)[0].to(memory_format=layout)
        student, info = begin_step(before, NAMES[OLD:]), StepInfo(OLD, NEW)
        labels = torch.randint(0, 2, size) * OLD
    else:
        student = build(arch if kind == "first" else arch.replace(rc=None), [NAMES])
        labels, info = torch.randint(0, OLD + NEW, size), StepInfo(0, OLD + NEW)
    gflop = operations(student, images) + (
        0 if teacher is None else operations(teacher.requires_grad_(False), images, 1)
    )
    student = student.to(memory_format=layout).train()
    if arguments.compile:
        student.compile()
    optimiser = torch.optim.AdamW([p for p in student.parameters() if p.requires_grad], 1e-4)

    def step() -> float:
        optimiser.zero_grad(set_to_none=True)
        with torch.no_grad():
            old = None if teacher is None else teacher(images, maps=method.maps)
        loss: Tensor = method.terms(student(images, maps=method.maps), old, labels, info).total
        loss.backward()  # type: ignore[no-untyped-call]
        optimiser.step()
        return loss.item()

    step.gflop = gflop * 1e-9  # type: ignore[attr-defined]
    return step


def operations(model: nn.Module, images: Tensor, passes: int = 2) -> float:
    """Operations of the convs of `model`: forward, gradient of the input and, where it learns, of the kernel.

    Products with padding count.
    """
    counts: list[float] = []

    def count(conv: nn.Module, _: Any, output: Tensor) -> None:
        weight = conv.weight
        assert isinstance(weight, Tensor)
        learns = passes > 1 and weight.requires_grad
        counts.append(2.0 * output.numel() * weight[0].numel() * (passes + learns))

    hooks = [m.register_forward_hook(count) for m in model.modules() if isinstance(m, nn.Conv2d)]
    with torch.no_grad():
        model.eval()(images[:1])
    for hook in hooks:
        hook.remove()
    return sum(counts) * len(images)


def make_inference(arguments: argparse.Namespace) -> Callable[[], float]:
    """A function that runs an exported network with ONNX Runtime on one image."""
    import onnxruntime as ort

    from rcil_export.graph.export import to_onnx
    from rcil_export.graph.interface import Interface
    from rcil_export.graph.shapes import InputShape

    names = [[*NAMES]]
    model = fold(build(Architecture(backbone=arguments.backbone, norm="batch"), names).eval())[0]
    metadata = Metadata(architecture=model.arch, classes=class_table(names))
    size = (arguments.crop, arguments.crop)
    document = to_onnx(model, metadata, Interface(shape=InputShape.of(*size), runtime="cpu"))
    options = ort.SessionOptions()
    options.intra_op_num_threads, options.inter_op_num_threads = arguments.threads, 1
    options.add_session_config_entry("session.force_spinning_stop", "1")
    for name, value in json.loads(arguments.session).items():
        options.add_session_config_entry(name, value)
    session = ort.InferenceSession(document.SerializeToString(), options, providers=["CPUExecutionProvider"])
    image = np.zeros((1, *size, 3), np.uint8)

    def infer() -> float:
        return float(session.run(None, {session.get_inputs()[0].name: image})[0].mean())

    return infer


def sgemm(size: int = 1536) -> dict[str, float]:
    """Billions of operations per second, and per processor second, of a product of two float32 matrices."""
    a, b = torch.randn(size, size), torch.randn(size, size)
    out = torch.empty(size, size)
    start, used = time.perf_counter(), time.process_time()
    for _ in range(3):
        torch.mm(a, b, out=out)
    wall, cpu = time.perf_counter() - start, time.process_time() - used
    return {"gflops": 6e-9 * size**3 / wall, "per_cpu": 6e-9 * size**3 / cpu}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--backbone", default="efficientnet_lite0")
    parser.add_argument("--crop", type=int, default=256)
    parser.add_argument("--batch", type=int, default=8)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--layout", choices=("contiguous", "channels-last"), default="contiguous")
    parser.add_argument("--compile", action="store_true", help="use torch.compile, which needs a C++ compiler")
    parser.add_argument("--session", default="{}", help="settings of ONNX Runtime's session, as JSON")
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    steps: dict[str, Callable[[], float]] = {}
    answer: dict[str, Any]
    for line in sys.stdin:
        request = json.loads(line)
        if request["step"] == "sgemm":
            answer = sgemm()
        else:
            if request["step"] not in steps:
                steps = {request["step"]: make_step(request["step"], arguments)}  # one at a time, to save memory
            torch.manual_seed(1)  # drop-path of all versions draws the same numbers
            start, used = time.perf_counter(), os.times()
            losses = [steps[request["step"]]() for _ in range(request["count"])]
            wall, now = time.perf_counter() - start, os.times()
            answer = {
                "seconds": wall / request["count"],
                "cpu": (now.user + now.system - used.user - used.system) / request["count"],
                "losses": losses,
                "gflop": getattr(steps[request["step"]], "gflop", None),
            }
        print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    main()
