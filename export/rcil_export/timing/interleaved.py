"""Interleaved timing of functions and ONNX Runtime sessions, and the ratio of their times."""

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
"""The processor clock counts the work of this process, but not its waiting for a busy processor."""


@dataclass(frozen=True)
class LatencyOptions:
    """Options of a timing."""

    rounds: int = 60
    """Timed runs of each function."""
    warmup: int = 5
    """Runs of each function before the first timed one."""
    threads: int = 1
    providers: tuple[str, ...] = (CPU,)
    """ONNX Runtime's execution providers, in the order of preference."""
    seed: int = 0
    """Seed of the order of each round, the images and the resampling."""

    def __post_init__(self) -> None:
        for name, smallest in (("rounds", 2), ("warmup", 0), ("threads", 1)):
            value = getattr(self, name)
            if value < smallest:
                raise ConfigError(f"{name} is {value}", f"Choose {smallest} or more.")


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
    """Seconds of every run by every clock; each round runs all functions once, in a new random order.

    Events that slow the machine down for a while affect all functions, and none always runs after the same other.

    Args:
        clocks: Functions that return seconds, by name.
        functions: The functions to time, by name.
        rounds: Timed runs of each.
        warmup: Runs of each before the first timed one.
        seed: Seed of the order.
        enough: Called after every round with the number of finished rounds; returns whether to stop.
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

    Rounds are resampled as pairs, so that a slow moment counts for both or for neither, and in blocks of consecutive
    rounds, because slow phases last longer than a round. The interval does not contain the variation between sessions
    of the same graphs; `certificate.latency` measures that.

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
    """Indices of rounds [resamples, count]: blocks of consecutive rounds that wrap around at the end."""
    length = max(1, round(count ** (1 / 3)))
    blocks = -(-count // length)
    starts = np.random.default_rng(seed).integers(0, count, (RESAMPLES, blocks, 1))
    picked: NDArray[np.int64] = ((starts + np.arange(length)) % count).reshape(RESAMPLES, -1)[:, :count]
    return picked


def random_image(shape: Sequence[int], kind: InputKind, seed: int = 0) -> NDArray[Any]:
    """Random noise over the whole range, in the shape of a graph's input."""
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
