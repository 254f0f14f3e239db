"""How fast: functions timed in turns, what their times say about each other, and ONNX Runtime as one of them."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import onnxruntime as ort
from numpy.typing import NDArray

from rcil.core.errors import ConfigError
from rcil_export.graph.interface import InputKind
from rcil_export.runtime.providers import CPU

RESAMPLES = 2000
Clock = Literal["wall", "processor"]
CLOCKS: dict[Clock, Callable[[], float]] = {"wall": time.perf_counter, "processor": time.process_time}
"""The processor's clock counts the work of this process and not its waiting for a processor that others use."""


@dataclass(frozen=True)
class LatencyOptions:
    """How to time."""

    rounds: int = 60
    """Timed runs of each function."""
    warmup: int = 5
    """Runs of each function before the first timed one."""
    threads: int = 1
    providers: tuple[str, ...] = (CPU,)
    """ONNX Runtime's execution providers, in the order of preference."""
    seed: int = 0
    """For the order of each round, the images and the resampling."""

    def __post_init__(self) -> None:
        for name, least in (("rounds", 2), ("warmup", 0), ("threads", 1)):
            value = getattr(self, name)
            if value < least:
                raise ConfigError(f"{name} is {value}", f"Choose {least} or more.")


def interleaved(
    functions: Mapping[str, Callable[[], object]],
    rounds: int,
    warmup: int,
    seed: int = 0,
    clock: Callable[[], float] = time.perf_counter,
) -> dict[str, list[float]]:
    """`interleaved_by` with one clock: seconds of every run of every function."""
    return interleaved_by({"wall": clock}, functions, rounds, warmup, seed)["wall"]


def interleaved_by(
    clocks: Mapping[Clock, Callable[[], float]],
    functions: Mapping[str, Callable[[], object]],
    rounds: int,
    warmup: int,
    seed: int = 0,
    enough: Callable[[int], bool] = lambda done: False,
) -> dict[Clock, dict[str, list[float]]]:
    """Seconds of every run by every clock; each round runs all functions once, in an order shuffled anew.

    Whatever slows the machine down for a while slows all of them down, and no one always runs after the same other.

    Args:
        clocks: Tell seconds, by name.
        functions: What to time, by name.
        rounds: Timed runs of each.
        warmup: Runs of each before the first timed one.
        seed: For the order.
        enough: Asked after every round with the number of rounds done: whether to stop here.
    """
    names = list(functions)
    for _ in range(warmup):
        for name in names:
            functions[name]()
    times: dict[Clock, dict[str, list[float]]] = {clock: {name: [] for name in names} for clock in clocks}
    random = np.random.default_rng(seed)
    for done in range(1, rounds + 1):
        for index in random.permutation(len(names)):
            starts = [clock() for clock in clocks.values()]
            functions[names[index]]()
            for (name, clock), start in zip(clocks.items(), starts, strict=True):
                times[name][names[index]].append(clock() - start)
        if enough(done):
            break
    return times


def percentiles(times: Sequence[float]) -> tuple[float, float, float]:
    """p50, p95 and p99, linearly interpolated."""
    p50, p95, p99 = np.percentile(times, (50, 95, 99))
    return float(p50), float(p95), float(p99)


def bootstrap_ratio(a: Sequence[float], b: Sequence[float], seed: int = 0) -> tuple[float, float, float]:
    """Median of `a` over median of `b`, and the ends of its 95 % interval over the rounds of these sessions.

    Rounds are resampled as pairs: a moment in which the machine was slow counts for both or for neither. They are drawn
    in blocks of neighbours, since what slows a machine down lasts for longer than a round. How the ratio would change
    with other sessions of the same graphs is not in the interval; `certificate.latency` measures that.

    Args:
        a: Times by round.
        b: Times of the same rounds.
        seed: For the resampling.
    """
    if len(a) != len(b) or not len(a):
        raise ValueError(f"{len(a)} and {len(b)} times are not pairs")
    pairs = np.array([a, b], np.float64)
    picked = resampled_blocks(len(a), seed)
    above, below = np.median(pairs[:, picked], axis=2)
    low, high = np.percentile(above / below, (2.5, 97.5))
    middle_a, middle_b = np.median(pairs, axis=1)
    return float(middle_a / middle_b), float(low), float(high)


def resampled_blocks(count: int, seed: int = 0) -> NDArray[np.int64]:
    """Indices of rounds [resamples, count]: blocks of neighbours that start anywhere, the end joined to the start."""
    length = max(1, round(count ** (1 / 3)))
    blocks = -(-count // length)
    starts = np.random.default_rng(seed).integers(0, count, (RESAMPLES, blocks, 1))
    picked: NDArray[np.int64] = ((starts + np.arange(length)) % count).reshape(RESAMPLES, -1)[:, :count]
    return picked


def random_image(shape: Sequence[int], kind: InputKind, seed: int = 0) -> NDArray[Any]:
    """Noise over the whole range, in all axes of a graph's input."""
    random = np.random.default_rng(seed)
    if kind == "uint8":
        return random.integers(0, 256, tuple(shape), dtype=np.uint8)
    return random.standard_normal(tuple(shape), dtype=np.float32)


def run_of(session: ort.InferenceSession, shape: Sequence[int], seed: int = 0) -> Callable[[], list[NDArray[Any]]]:
    """A function that runs the session once on noise; it returns all outputs.

    Args:
        session: Takes one image batch, uint8 or float32.
        shape: All axes of it.
        seed: For the noise.
    """
    entry = session.get_inputs()[0]
    image = random_image(shape, "uint8" if entry.type == "tensor(uint8)" else "float", seed)

    def run() -> list[NDArray[Any]]:
        outputs: list[NDArray[Any]] = session.run(None, {entry.name: image})
        return outputs

    return run
