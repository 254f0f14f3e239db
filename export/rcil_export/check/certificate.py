"""The zero-cost certificate: a folded network against the plain one that never had two branches."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import onnx

from rcil.checkpoint.metadata import Metadata
from rcil.errors import ConfigError, MissingDependencyError
from rcil.nn import Cost, Segmenter, cost, fold, plain_twin
from rcil_export.check.graph import canonical, first_difference, parameters_and_macs
from rcil_export.check.latency import (
    CLOCKS,
    Clock,
    LatencyOptions,
    bootstrap_ratio,
    interleaved_by,
    percentiles,
    run_of,
)
from rcil_export.check.memory import MemoryMeasureError, peak_memory
from rcil_export.check.result import Item, Result
from rcil_export.engine.build import build_engine
from rcil_export.engine.errors import EngineError
from rcil_export.engine.options import EngineOptions
from rcil_export.interface import Interface, Precision
from rcil_export.onnx_graph.ends import input_dims
from rcil_export.onnx_graph.export import to_onnx
from rcil_export.sessions import CPU, open_session
from rcil_export.shapes import InputShape

Conversion = Callable[[onnx.ModelProto], onnx.ModelProto]
"""An fp32 graph -> the same graph in another precision."""
LATENCY_LIMIT = 0.02
"""Share by which the folded graph may be slower than the plain one."""
SURELY_SLOWER = 0.1
"""Share above which a whole interval shows that it is slower. Below, two sessions of one and the same file can differ
by their luck with the places of their buffers, which no number of rounds averages out."""
FEWEST_ROUNDS = 10
"""With fewer, an interval is too short to show that anything is slower."""
LATENCY_SECONDS = 15.0
"""A measurement that takes longer ends after the fewest rounds: large networks are slow, and their times steady."""
MEMORY_LIMIT = 0.1
"""Share by which its peak memory may be larger. Two runs of one and the same file differ by up to 9 %: the allocator
sometimes finds room for a buffer and sometimes asks for more."""
MEMORY_GRAIN = 4 * 2**20
"""Bytes by which any two runs may differ: the allocator asks for whole pages, and small networks have few."""
MEMORY_RUNS = 3
ENGINE_GPUS = ("sm86",)


def certify(
    model: Segmenter,
    metadata: Metadata,
    interface: Interface,
    *,
    engine: bool,
    latency: LatencyOptions | None,
    memory: bool = True,
    gpus: tuple[str, ...] = ENGINE_GPUS,
    conversions: Mapping[Precision, Conversion] | None = None,
) -> Result:
    """Whether the deployed form of `model` costs what a network that never had RC blocks costs.

    The graph of the twin is that of a network built on its own, with random weights. Where weights matter (engine,
    latency, memory) the twin gets those of the folded network. Sizes that vary stand open in the compared graphs; all
    that needs numbers is measured at the usual size.

    Args:
        model: A network of any step, folded or not.
        metadata: Its description.
        interface: What the exported graph takes and gives.
        engine: Build TensorRT-RTX engines of both and compare their bytes.
        latency: How to time both; None leaves it out.
        memory: Measure the peak memory of both.
        gpus: Compute capabilities to build for.
        conversions: Further precisions to build engines in, and how to get there from the fp32 graph.
    """
    folded, twin = fold(model)[0], plain_twin(model).eval()
    asked = interface.model_copy(update={"precision": "fp32", "folded": True})
    _, height, width = interface.shape.usual
    fixed = asked.model_copy(update={"shape": InputShape.of(height, width, interface.shape.batch.usual)})
    own, plain = to_onnx(folded, metadata, fixed), to_onnx(twin, metadata, fixed)
    open_sizes = () if fixed == asked else (to_onnx(folded, metadata, asked), to_onnx(twin, metadata, asked))
    difference = first_difference(*(open_sizes or (own, plain)))
    items = [graph_item(difference, len(own.graph.node))]
    items += cost_items(own, cost(twin, (height, width)))
    if difference is None:
        twin.load_state_dict(folded.state_dict())
        plain = to_onnx(twin, metadata, fixed)
    if engine:
        ways: dict[Precision, Conversion] = {"fp32": lambda document: document, **(conversions or {})}
        items += [engine_item(way(own), way(plain), precision, gpus) for precision, way in ways.items()]
    shape = tuple(int(side) for side in input_dims(fixed.shape, fixed))
    if latency is not None:
        items.append(latency_item(own, plain, shape, latency))
    if memory:
        items.append(memory_item(own, plain, shape, 1 if latency is None else latency.threads))
    return Result("certificate", "No extra cost over a plain network", tuple(items))


def graph_item(difference: str | None, nodes: int) -> Item:
    """The verdict on two graphs of which `difference` is the first."""
    return Item(
        "graph",
        "Same graph as the plain network",
        difference is None,
        difference or f"{nodes} nodes, all with the same op, attributes, wiring, types and shapes",
        "the same node for node",
        {"nodes": nodes},
    )


def cost_items(own: onnx.ModelProto, plain: Cost) -> list[Item]:
    """Parameters and multiply-accumulates, counted in the folded ONNX graph and in the plain torch network."""
    titles = {"parameters": "Parameters", "macs": f"Multiply-accumulates at {plain.size[0]}x{plain.size[1]}"}
    counted = dict(zip(titles, parameters_and_macs(own), strict=True))
    expected = {"parameters": plain.parameters, "macs": plain.macs}
    return [
        Item(
            key,
            title,
            counted[key] == expected[key],
            f"{counted[key]:,}",
            f"exactly {expected[key]:,}",
            {"folded": counted[key], "plain": expected[key]},
        )
        for key, title in titles.items()
    ]


def engine_item(own: onnx.ModelProto, plain: onnx.ModelProto, precision: Precision, gpus: tuple[str, ...]) -> Item:
    """Whether TensorRT-RTX builds the same bytes from both, under canonical names: engines contain those of nodes."""
    key, title, required = f"engine_{precision}", f"Same TensorRT-RTX engine in {precision}", "the same bytes"
    options = EngineOptions(precision=precision, flavour="rtx", gpus=gpus)
    with tempfile.TemporaryDirectory(prefix="rcil-certificate-") as folder:
        try:
            first, second = (
                _built(canonical(document), Path(folder) / name, options)
                for name, document in (("folded", own), ("plain", plain))
            )
        except (MissingDependencyError, ConfigError) as error:  # not here, or not for these GPUs
            return Item(key, title, None, f"not built: {error.message}", required, {"remedy": error.hint})
        except EngineError as error:
            return Item(key, title, False, f"not built: {error.message}", required, {"remedy": error.hint})
    same = first["sha256"] == second["sha256"]
    return Item(
        key,
        title,
        same,
        f"{first['bytes']:,} bytes for {', '.join(gpus)}, sha256 {first['sha256'][:12]}"
        + ("" if same else f"; the plain network's: {second['bytes']:,} bytes, {second['sha256'][:12]}"),
        required,
        {"gpus": list(gpus), "folded": first, "plain": second},
    )


def _built(document: onnx.ModelProto, stem: Path, options: EngineOptions) -> dict[str, Any]:
    source, target = stem.with_suffix(".onnx"), stem.with_suffix(".engine")
    source.write_bytes(document.SerializeToString())
    start = time.perf_counter()
    sidecar = build_engine(source, target, options)
    return {
        "sha256": sidecar.engine_sha256,
        "bytes": target.stat().st_size,
        "onnx_sha256": sidecar.onnx_sha256,
        "version": sidecar.version,
        "seconds": round(time.perf_counter() - start, 2),
    }


@dataclass(frozen=True)
class Comparison:
    """One measurement of the folded graph's time over the plain one's."""

    clock: Clock
    ratio: float
    low: float
    high: float
    folded_ms: float
    plain_ms: float
    """Medians."""
    times_ms: dict[str, list[float]] = field(default_factory=dict)
    """Every run of both, by round."""

    @property
    def passed(self) -> bool | None:
        """What the interval shows: all of it is within the limit, all of it is surely above, or neither."""
        if self.high <= 1 + LATENCY_LIMIT:
            return True
        return False if self.low > 1 + SURELY_SLOWER and self.rounds >= FEWEST_ROUNDS else None

    @property
    def rounds(self) -> int:
        """Runs that it rests on."""
        return min(map(len, self.times_ms.values()), default=0)


def latency_item(own: onnx.ModelProto, plain: onnx.ModelProto, shape: tuple[int, ...], options: LatencyOptions) -> Item:
    """Both graphs in ONNX Runtime, timed in turns; what the first measurement does not show, a second one may.

    The second uses fresh sessions, since a session keeps the luck it had with the places of its buffers. On a CPU the
    time that the processor worked counts too, since a shared machine makes programs wait.
    """
    start = time.perf_counter()
    found = _timed(own, plain, shape, options)
    if not any(comparison.passed for comparison in found) and time.perf_counter() - start < LATENCY_SECONDS:
        found += _timed(own, plain, shape, options)
    return latency_verdict(found, options)


def latency_verdict(found: Sequence[Comparison], options: LatencyOptions) -> Item:
    """Passed if one measurement shows it, failed if every one shows the opposite, undecided otherwise."""
    verdicts = [comparison.passed for comparison in found]
    passed = True if True in verdicts else (None if None in verdicts else False)
    texts = [f"{c.ratio:.3f} ({c.low:.3f} to {c.high:.3f}) by the {c.clock} clock" for c in found]
    if passed is None:
        texts.append("too noisy here to tell: try again on a quiet machine or with more rounds")
    return Item(
        "latency",
        "Latency over the plain network's, with its 95 % interval",
        passed,
        "; ".join(texts),
        f"not above {1 + LATENCY_LIMIT:.2f}",
        {
            **asdict(options),
            "measurements": [asdict(comparison) for comparison in found],
            "times_ms": found[0].times_ms,
        },
    )


def _timed(
    own: onnx.ModelProto, plain: onnx.ModelProto, shape: tuple[int, ...], options: LatencyOptions
) -> list[Comparison]:
    """One measurement, by every clock that says something about the device."""
    runs = {}
    for name, document in (("folded", own), ("plain", plain)):
        session = open_session(document, options.threads, options.providers)
        runs[name] = run_of(session, shape, options.seed)
    clocks = {name: clock for name, clock in CLOCKS.items() if name == "wall" or options.providers[0] == CPU}
    start = time.perf_counter()
    by_clock = interleaved_by(
        clocks,
        runs,
        options.rounds,
        options.warmup,
        options.seed,
        lambda done: done >= FEWEST_ROUNDS and time.perf_counter() - start > LATENCY_SECONDS,
    )
    return [_comparison(clock, times, options.seed) for clock, times in by_clock.items()]


def _comparison(clock: Clock, times: dict[str, list[float]], seed: int) -> Comparison:
    ratio, low, high = bootstrap_ratio(times["folded"], times["plain"], seed)
    folded_ms, plain_ms = (1000 * percentiles(times[name])[0] for name in ("folded", "plain"))
    times_ms = {name: [round(1000 * value, 3) for value in values] for name, values in times.items()}
    return Comparison(clock, ratio, low, high, folded_ms, plain_ms, times_ms)


def memory_item(own: onnx.ModelProto, plain: onnx.ModelProto, shape: tuple[int, ...], threads: int) -> Item:
    """Peak memory of both in processes of their own, in turns: the smallest of as many runs as are needed to pass."""
    title, required = "Peak memory over the plain network's", f"not above {1 + MEMORY_LIMIT:.2f}"

    def fits() -> bool:
        first, second = (min(values) for values in peaks.values())
        return first <= (1 + MEMORY_LIMIT) * second + MEMORY_GRAIN

    peaks: dict[str, list[int]] = {"folded": [], "plain": []}
    with tempfile.TemporaryDirectory(prefix="rcil-certificate-") as folder:
        for name, document in (("folded", own), ("plain", plain)):
            (Path(folder) / f"{name}.onnx").write_bytes(document.SerializeToString())
        try:
            for _ in range(MEMORY_RUNS):
                for name, values in peaks.items():
                    values.append(peak_memory(Path(folder) / f"{name}.onnx", shape, threads))
                if fits():
                    break
        except MemoryMeasureError as error:
            return Item("memory", title, None, f"not measured: {error.message}", required)
    first, second = (min(values) for values in peaks.values())
    return Item(
        "memory",
        title,
        fits(),
        f"{first / second:.3f} ({first / 2**20:.1f} and {second / 2**20:.1f} MiB)",
        required,
        {"ratio": first / second, "bytes": peaks},
    )
