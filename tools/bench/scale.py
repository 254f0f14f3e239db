"""Measure how time, memory and cost grow with classes, steps, image size and number of images.

- classes: an RCIL step that adds one class to N - 1, and the export of the result.
- steps: twenty steps of one class; after each the folded network is certified against one that never had two branches.
- size: the same RCIL step with larger crops, export and inference with larger images.
- images: what `rcil train` does before the first iteration, and one pass over the images.

Variants of a section alternate in one process; times are medians with the interquartile range. Memory is the growth of
the peak resident set in a process of its own.

Examples:
    python tools/bench/scale.py
    python tools/bench/scale.py steps --steps 5
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import torch
from pcd import growth_mb, in_fresh_processes, summary
from ratios import Ratio, options_of, record, write_numbers

from rcil.checkpoint.file import save
from rcil.data import scan
from rcil.methods import StepInfo, make_method
from rcil.model.architecture import Architecture
from rcil.model.metadata import Metadata, class_table
from rcil.nn import Segmenter, begin_step, build, cost, fold
from rcil.tasks.plan import make_plan
from rcil.tasks.task import Task
from rcil.training.loader import Crops, CropSettings, batches
from rcil_export.certificate.certify import certify
from rcil_export.convert import convert
from rcil_export.graph.export import to_onnx
from rcil_export.graph.interface import Interface
from rcil_export.graph.onnx_file import write_onnx
from rcil_export.graph.shapes import InputShape
from rcil_export.runtime.sessions import open_session

BATCH = 4
CLASSES, SIZES, IMAGES = (2, 10, 30, 100, 300), (128, 256, 384, 512), (100, 1000, 10000)


def network(backbone: str, classes: int) -> Segmenter:
    """A network with two branches and random weights."""
    torch.manual_seed(0)
    return build(
        Architecture().replace(backbone=backbone), [["background", *(f"class {i}" for i in range(1, classes))]]
    )


def described(model: Segmenter) -> Metadata:
    steps = [list(names) for names in model.classifier.steps]
    return Metadata(architecture=model.arch, classes=class_table(steps), step=len(steps) - 1)


def training_step(backbone: str, classes: int, crop: int) -> Callable[[], None]:
    """One optimisation step of RCIL that adds the last of `classes` classes."""
    previous = network(backbone, classes - 1)
    student, teacher = begin_step(previous, ["new"]).train(), fold(previous)[0].eval()
    images = torch.randn(BATCH, 3, crop, crop)
    labels = torch.randint(0, 2, (BATCH, crop, crop)) * (classes - 1)
    method, info = make_method("rcil"), StepInfo(classes - 1, 1)
    optimiser = torch.optim.SGD([p for p in student.parameters() if p.requires_grad], 1e-9, momentum=0.9)

    def step() -> None:
        with torch.no_grad():
            old = teacher(images, maps="before")
        optimiser.zero_grad()
        method.terms(student(images, maps="before"), old, labels, info).total.backward()
        optimiser.step()

    return step


def exporting(backbone: str, classes: int, side: int) -> Callable[[], None]:
    """Fold and convert."""
    model = network(backbone, classes).eval()
    interface = Interface(shape=InputShape.of(side, side))

    def export() -> None:
        folded = fold(model)[0]
        to_onnx(folded, described(folded), interface)

    return export


def inference(backbone: str, side: int) -> Callable[[], None]:
    """One image through ONNX Runtime, bytes to mask."""
    folded = fold(network(backbone, 20).eval())[0]
    document = to_onnx(folded, described(folded), Interface(shape=InputShape.of(side, side), runtime="cpu"))
    session = open_session(document, torch.get_num_threads())
    image = np.zeros((1, side, side, 3), np.uint8)
    return lambda: session.run(None, {"image": image})


def in_turns(jobs: Mapping[Any, Callable[[], object]], rounds: int) -> dict[Any, dict[str, float]]:
    """Median and interquartile range of each job's time; the first round is a warm-up."""
    seconds: dict[Any, list[float]] = {key: [] for key in jobs}
    for turn in range(rounds + 1):
        for key, job in jobs.items():
            start = time.perf_counter()
            job()
            if turn:
                seconds[key].append(time.perf_counter() - start)
    return {key: summary(values) for key, values in seconds.items()}


def peak_mb(job: tuple[str, int, int, int]) -> float:
    """Growth of this process's peak memory by two training steps; call it in a fresh process."""
    backbone, classes, crop, threads = job
    torch.set_num_threads(threads)
    step = training_step(backbone, classes, crop)
    return growth_mb(lambda: [step() for _ in range(2)])


def by_classes(arguments: argparse.Namespace) -> list[dict[str, Any]]:
    name, crop, side = arguments.backbone, 128, 256
    train = in_turns({n: training_step(name, n, crop) for n in CLASSES}, arguments.rounds)
    export = in_turns({n: exporting(name, n, side) for n in CLASSES}, arguments.rounds)
    memory = in_fresh_processes(peak_mb, [(name, n, crop, arguments.threads) for n in CLASSES])
    rows = []
    for n, peak in zip(CLASSES, memory, strict=True):
        needed = cost(fold(network(name, n).eval())[0], (side, side))
        rows.append(
            {
                "classes": n,
                "training step, ms": train[n],
                "peak, MB": peak,
                "export, ms": export[n],
                "parameters": needed.parameters,
                "MACs, M": needed.macs / 1e6,
            }
        )
    return rows


def by_steps(arguments: argparse.Namespace) -> list[dict[str, Any]]:
    """Certify every step; a row also states what the number of classes alone explains."""
    model, rows = network(arguments.backbone, 2), []
    interface = Interface(shape=InputShape.of(256, 256))
    for step in range(1, arguments.steps + 1):
        model = begin_step(model, [f"new {step}"]).eval()
        with tempfile.TemporaryDirectory() as name:
            checkpoint, delivered = Path(name) / "step.safetensors", Path(name) / "model.onnx"
            save(checkpoint, model, described(model))
            write_onnx(delivered, convert(model, described(model), interface).document)
            start = time.perf_counter()
            found = certify(delivered, checkpoint, interface, engine=False, latency=None, memory=False)
            seconds = time.perf_counter() - start
        folded, whole = cost(fold(model)[0], (256, 256)), cost(model, (256, 256))
        rows.append(
            {
                "step": step,
                "classes": len(model.names),
                "certificate": "holds" if found.ok else "FAILS",
                "parameters deployed": folded.parameters,
                "MACs deployed, M": folded.macs / 1e6,
                "MACs in training, M": whole.macs / 1e6,
                "certified in, s": round(seconds, 1),
            }
        )
    return rows


def by_size(arguments: argparse.Namespace) -> list[dict[str, Any]]:
    name = arguments.backbone
    train = in_turns({side: training_step(name, 20, side) for side in SIZES}, arguments.rounds)
    export = in_turns({side: exporting(name, 20, side) for side in SIZES}, arguments.rounds)
    infer = in_turns({side: inference(name, side) for side in SIZES}, 3 * arguments.rounds)
    memory = in_fresh_processes(peak_mb, [(name, 20, side, arguments.threads) for side in SIZES])
    return [
        {
            "side": side,
            "training step, ms": train[side],
            "peak, MB": peak,
            "export, ms": export[side],
            "inference, ms": infer[side],
        }
        for side, peak in zip(SIZES, memory, strict=True)
    ]


def write_site(root: Path, count: int) -> None:
    """A site of `count` images of 64x64 with two classes."""
    random = np.random.default_rng(0)
    (root / "classes.txt").parent.mkdir(parents=True)
    (root / "classes.txt").write_text("background\nroad\ncar\n")
    for split, number in (("train", count), ("val", 4)):
        for kind in ("images", "masks"):
            (root / kind / split).mkdir(parents=True)
        for index in range(number):
            colours = random.integers(0, 255, (8, 8, 3), np.uint8)
            cv2.imwrite(str(root / "images" / split / f"{index:06}.png"), cv2.resize(colours, (64, 64)))
            ids = random.integers(0, 3, (8, 8), np.uint8)
            mask = cv2.resize(ids, (64, 64), interpolation=cv2.INTER_NEAREST)
            cv2.imwrite(str(root / "masks" / split / f"{index:06}.png"), mask)


def by_images(arguments: argparse.Namespace) -> list[dict[str, Any]]:
    with tempfile.TemporaryDirectory() as folder:
        tasks = {}
        for count in IMAGES:
            root = Path(folder) / str(count)
            write_site(root, count)
            protocol = {"steps": [["road"], ["car"]]}
            tasks[count] = Task.model_validate({"recipe": "paper", "data": {"root": root}, "protocol": protocol})

        def planning(task: Task) -> Callable[[], None]:
            def plan() -> None:
                scan._values.cache_clear()  # as in a process that has just started
                make_plan(task)

            return plan

        def reading(count: int) -> Callable[[], None]:
            data = make_plan(tasks[count]).data
            metadata = Metadata(architecture=Architecture(), classes=class_table([list(data.names)]))
            settings = CropSettings(8, 64, (0.5, 2.0), 0)
            crops = Crops(data.splits["train"], np.arange(256, dtype=np.uint8), metadata, settings, (0, 0))
            return lambda: sum(len(labels) for pieces in batches(crops, 0) for _, labels in pieces) and None

        plans = in_turns({count: planning(tasks[count]) for count in IMAGES}, 3)
        reads = in_turns({count: reading(count) for count in IMAGES}, 2)
    return [{"images": count, "plan, ms": plans[count], "one pass, ms": reads[count]} for count in IMAGES]


SECTIONS: Mapping[str, Callable[[argparse.Namespace], list[dict[str, Any]]]] = {
    "classes": by_classes,
    "steps": by_steps,
    "size": by_size,
    "images": by_images,
}


def as_text(value: Any) -> str:
    match value:
        case {"median_ms": middle, "iqr_ms": spread}:
            return f"{middle:.0f} ± {spread:.0f}"
        case float():
            return f"{value:,.0f}" if value >= 100 else f"{value:.1f}"
        case int():
            return f"{value:,}"
    return str(value)


def growth(first: dict[str, float], last: dict[str, float]) -> Ratio:
    """The time of the smallest case over that of the largest, with the ends that both interquartile ranges allow."""
    least, most = ([row["median_ms"] + sign * row["iqr_ms"] / 2 for row in (first, last)] for sign in (-1, 1))
    return Ratio(first["median_ms"] / last["median_ms"], least[0] / most[1], most[0] / least[1])


def main() -> None:
    parser = options_of(__doc__)
    parser.add_argument("sections", nargs="*", metavar="SECTION", help=f"all by default: {', '.join(SECTIONS)}")
    parser.add_argument("--backbone", default="efficientnet_lite0")
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--rounds", type=int, default=5, help="rounds after one warm-up (default 5)")
    parser.add_argument("--threads", type=int, default=2)
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    report = {name: SECTIONS[name](arguments) for name in arguments.sections or SECTIONS}
    for name, rows in report.items():
        print(f"\n## {name}\n")
        print("| " + " | ".join(rows[0]) + " |\n|" + "---|" * len(rows[0]))
        for row in rows:
            print("| " + " | ".join(as_text(value) for value in row.values()) + " |")
    record(
        "scale",
        {
            f"{section}: first / last, {name}": growth(rows[0][name], rows[-1][name])
            for section, rows in report.items()
            for name, value in rows[0].items()
            if isinstance(value, dict)
        },
    )
    write_numbers(arguments.json, report)


if __name__ == "__main__":
    main()
