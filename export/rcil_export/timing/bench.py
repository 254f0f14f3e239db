"""Timing a model in its deployed form against its plain twin, the unfolded network and torch."""

from __future__ import annotations

import contextlib
import platform
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime as ort
import torch
from numpy.typing import NDArray
from torch import Tensor

from rcil.checkpoint.file import load_for_inference
from rcil.core.errors import ConfigError
from rcil.model.header import read_header
from rcil.model.metadata import Metadata
from rcil.nn import Network, fold, plain_twin
from rcil_export.graph.export import to_onnx
from rcil_export.graph.interface import Interface
from rcil_export.graph.onnx_file import read_onnx
from rcil_export.graph.preprocessing import usual_input_dims
from rcil_export.graph.shapes import DEFAULT_SIZE, InputShape
from rcil_export.input_size import default_notice
from rcil_export.runtime.devices import PROVIDERS
from rcil_export.runtime.forms import check_provider_form, needs_wide_sums
from rcil_export.runtime.providers import CPU
from rcil_export.runtime.sessions import check_providers, open_session
from rcil_export.timing.interleaved import (
    CLOCKS,
    Clock,
    LatencyOptions,
    bootstrap_ratio,
    interleaved,
    percentiles,
    random_image,
    run_of,
)

ON_GPU = (PROVIDERS["cuda"], PROVIDERS["tensorrt"])
BINS = 30


@dataclass(frozen=True)
class BenchOptions:
    """Options of a benchmark."""

    interface: Interface | None = None
    """The interface of graphs that are made from checkpoints; None: that of the first ONNX file, or one image of
    512x512."""
    timing: LatencyOptions = field(default_factory=LatencyOptions)
    clock: Clock = "wall"
    """`processor` counts work but not waiting, for comparisons on a shared machine."""


@dataclass(frozen=True)
class Entry:
    """One way to run a model, and the times of its runs."""

    name: str
    times: tuple[float, ...]
    """Seconds by round."""
    p50_ms: float
    p95_ms: float
    p99_ms: float
    images_per_second: float
    """Throughput of the median run."""
    ratio: float
    """Median time divided by that of the first entry."""
    low: float
    high: float
    """95 % interval of `ratio`."""


@dataclass(frozen=True)
class BenchReport:
    """The result of `rcil-export bench`."""

    entries: tuple[Entry, ...]
    shape: tuple[int, int, int]
    """Batch, height and width."""
    timing: LatencyOptions
    clock: Clock
    machine: dict[str, str]
    notes: tuple[str, ...]
    """What was left out, and why."""

    def as_document(self) -> dict[str, Any]:
        """JSON-ready; the times are histograms with the same bins for all entries."""
        slowest = max(np.percentile(entry.times, 99) for entry in self.entries)
        fastest = min(min(entry.times) for entry in self.entries)
        edges = np.linspace(fastest, max(slowest, fastest * 1.001), BINS + 1)
        return {
            "batch": self.shape[0],
            "size": list(self.shape[1:]),
            "timing": asdict(self.timing),
            "clock": self.clock,
            "machine": self.machine,
            "notes": list(self.notes),
            "histogram_edges_ms": (1000 * edges).tolist(),
            "entries": [
                {
                    **{key: value for key, value in asdict(entry).items() if key != "times"},
                    "histogram": np.histogram(np.clip(entry.times, edges[0], edges[-1]), edges)[0].tolist(),
                }
                for entry in self.entries
            ],
        }

    def as_text(self) -> str:
        """A table; all entries are compared with the first."""
        batch, height, width = self.shape
        heading = (
            f"{batch} x {height}x{width}, {self.timing.rounds} rounds, {self.timing.threads} threads, "
            f"{', '.join(self.timing.providers)}, {self.clock} clock"
        )
        rows: list[tuple[str, ...]] = [("", "p50 ms", "p95 ms", "p99 ms", "images/s", "time over the first (95 %)")]
        for entry in self.entries:
            numbers = (entry.p50_ms, entry.p95_ms, entry.p99_ms, entry.images_per_second)
            ratio = f"{entry.ratio:.3f} ({entry.low:.3f} to {entry.high:.3f})" if entry != self.entries[0] else "1"
            rows.append((entry.name, *(f"{number:.2f}" for number in numbers), ratio))
        widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
        lines = [
            "  ".join(
                [row[0].ljust(widths[0]), *(cell.rjust(size) for cell, size in zip(row[1:], widths[1:], strict=True))]
            ).rstrip()
            for row in rows
        ]
        return "\n".join([heading, *lines, *(f"note: {note}" for note in self.notes)])


Run = Callable[[], object]


def bench(paths: Sequence[Path], options: BenchOptions) -> BenchReport:
    """Time model files in one interleaved run.

    A checkpoint is timed in four forms, all from image to mask: the folded graph, the graph of its plain twin and the
    graph with both branches in ONNX Runtime, and the folded network in torch. An ONNX file is timed as it is.

    Args:
        paths: Checkpoints and ONNX files; all must take the same images.
        options: Sizes, rounds and clock.
    """
    if not paths:
        raise ConfigError("no model was given", "Give a checkpoint (.safetensors) or an ONNX file (.onnx).")
    check_providers(options.timing.providers)
    if options.clock == "processor" and options.timing.providers[0] != CPU:
        raise ConfigError(
            f"the processor clock does not see the work of {options.timing.providers[0]}", "Use the wall clock."
        )
    notes: list[str] = []
    interface = options.interface or _interface_of(paths, notes)
    with _torch_threads(options.timing.threads):
        runs: dict[str, Run] = {}
        for label, path in zip(labels_of(paths), paths, strict=True):
            made = _runs_of(path, interface, options.timing, notes)
            runs |= {f"{label}{name}": run for name, run in made.items()}
        timing = options.timing
        times = interleaved(runs, timing.rounds, timing.warmup, timing.seed, CLOCKS[options.clock])
    return report_of(times, interface.shape.usual, options, notes)


def labels_of(paths: Sequence[Path]) -> list[str]:
    """Prefixes that tell the runs of several files apart; empty for a single file.

    A prefix is the name of the file, or its path if names repeat, with a number if the path repeats too.
    """
    if len(paths) == 1:
        return [""]
    names = [path.name for path in paths]
    texts = [path.name if names.count(path.name) == 1 else str(path) for path in paths]
    numbers = [texts[: at + 1].count(text) for at, text in enumerate(texts)]
    return [f"{text}: " if number == 1 else f"{text} ({number}): " for text, number in zip(texts, numbers, strict=True)]


def report_of(
    times: Mapping[str, Sequence[float]], shape: tuple[int, int, int], options: BenchOptions, notes: Sequence[str]
) -> BenchReport:
    """The report of measured times; all are compared with the first."""
    first = next(iter(times.values()))
    entries = []
    for name, values in times.items():
        p50, p95, p99 = percentiles(values)
        ratio, low, high = bootstrap_ratio(values, first, options.timing.seed)
        entries.append(Entry(name, tuple(values), 1000 * p50, 1000 * p95, 1000 * p99, shape[0] / p50, ratio, low, high))
    machine = {
        "system": platform.platform(),
        "processor": platform.processor() or platform.machine(),
        "onnxruntime": ort.__version__,
        "torch": torch.__version__,
    }
    return BenchReport(tuple(entries), shape, options.timing, options.clock, machine, tuple(notes))


def _interface_of(paths: Sequence[Path], notes: list[str]) -> Interface:
    """The interface of the first ONNX file, in fp32, so that checkpoints are exported to match it.

    Without an ONNX file, images have the default size, and what it means for a model trained on resized ones is noted.
    """
    for path in paths:
        if path.suffix.lower() == ".onnx":
            return read_onnx(path).interface.model_copy(update={"precision": "fp32", "folded": True})
    stored = [read_header(path).metadata for path in paths if path.suffix.lower() == ".safetensors"]
    notes += dict.fromkeys(default_notice(metadata) for metadata in stored if metadata.training_scale != 1)
    return Interface(shape=InputShape.of(*DEFAULT_SIZE))


def _runs_of(path: Path, interface: Interface, timing: LatencyOptions, notes: list[str]) -> dict[str, Run]:
    """The runs of a file, ready to be timed; runs that are left out are noted."""
    match path.suffix.lower():
        case ".onnx":
            file = read_onnx(path)
            _check_same_images(path, file.interface, interface)
            check_provider_form(file.interface, timing.providers[0], path)
            form = ", for cpu" if file.interface.runtime == "cpu" else ""
            name = f"ONNX {file.interface.precision}{form}" + ("" if file.interface.folded else ", two branches")
            wide = needs_wide_sums(file.interface)
            return {name: _graph_run(file.document, interface, timing, wide_sums=wide)}
        case ".safetensors":
            return _checkpoint_runs(*load_for_inference(path), interface, timing, notes)
        case _:
            raise ConfigError(
                f"{path} cannot be timed", "Give a checkpoint (.safetensors) or an ONNX file (.onnx) of rcil-export."
            )


def _checkpoint_runs(
    model: Network, metadata: Metadata, interface: Interface, timing: LatencyOptions, notes: list[str]
) -> dict[str, Run]:
    folded, twin = fold(model)[0], plain_twin(model).eval()
    twin.load_state_dict(folded.state_dict())
    runs = {
        "ONNX folded": _graph_run(to_onnx(folded, metadata, interface), interface, timing),
        "ONNX plain twin": _graph_run(to_onnx(twin, metadata, interface), interface, timing),
    }
    if model.arch.folded:
        notes.append("the checkpoint is folded, so there are no two branches to time")
    else:
        branches = interface.model_copy(update={"folded": False})
        runs["ONNX two branches"] = _graph_run(to_onnx(model, metadata, branches), interface, timing)
    device = "cpu" if timing.providers[0] == CPU else "cuda"
    if timing.providers[0] not in (CPU, *ON_GPU) or (device == "cuda" and not torch.cuda.is_available()):
        notes.append(f"torch is left out: it cannot run here where {timing.providers[0]} does")
    else:
        runs["torch eager, folded"] = torch_run(folded.to(device), metadata, interface, timing.seed)
    return runs


def _graph_run(
    document: onnx.ModelProto, interface: Interface, timing: LatencyOptions, *, wide_sums: bool = False
) -> Run:
    session = open_session(document, timing.threads, timing.providers, wide_sums=wide_sums)
    return run_of(session, usual_input_dims(interface), timing.seed)


def torch_run(model: Network, metadata: Metadata, interface: Interface, seed: int) -> Run:
    """The same work as that of the graph, in torch on the model's device: from the image to outputs in main memory.

    Args:
        model: Folded.
        metadata: Mean and standard deviation of uint8 images.
        interface: Input and outputs; the sizes are the usual ones.
        seed: Seed of the random image.
    """
    device = next(model.parameters()).device
    mean = 255 * torch.tensor(metadata.mean, device=device).view(1, 3, 1, 1)
    std = 255 * torch.tensor(metadata.std, device=device).view(1, 3, 1, 1)
    image = random_image(usual_input_dims(interface), interface.input, seed)

    @torch.inference_mode()
    def run() -> dict[str, NDArray[Any]]:
        x = torch.from_numpy(image).to(device)
        if interface.input == "uint8":
            x = (x.permute(0, 3, 1, 2).float() - mean) / std
        logits: Tensor = model(x)
        outputs = {"logits": logits}
        if "mask" in interface.outputs:
            outputs["mask"] = logits.argmax(1).to(torch.uint8 if len(model.names) <= 256 else torch.int32)
        if "confidence" in interface.outputs:
            outputs["confidence"] = logits.softmax(1).amax(1)
        return {name: outputs[name].cpu().numpy() for name in interface.outputs}

    return run


def _check_same_images(path: Path, own: Interface, wanted: Interface) -> None:
    """Raise unless a graph takes the images that all models are timed on."""
    batch, height, width = wanted.shape.usual
    fits = own.shape.takes(height, width) and own.shape.batch.low <= batch <= own.shape.batch.high
    if not fits or own.input != wanted.input:
        raise ConfigError(
            f"{path} takes {own.input} images of {own.shape}, not {wanted.input} ones of {batch} x {height} x {width}",
            "Time models that take the same images, or each on its own.",
        )


@contextlib.contextmanager
def _torch_threads(threads: int) -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        yield
    finally:
        torch.set_num_threads(before)
