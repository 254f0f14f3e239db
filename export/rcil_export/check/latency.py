"""How fast: functions timed in turns, what their times say about each other, and ONNX Runtime as one of them."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
import onnxruntime as ort
from numpy.typing import NDArray

from rcil.errors import ConfigError, RcilError, did_you_mean
from rcil_export.interface import InputKind

CPU = "CPUExecutionProvider"
RESAMPLES = 2000
Clock = Literal["wall", "processor"]
CLOCKS: dict[Clock, Callable[[], float]] = {"wall": time.perf_counter, "processor": time.process_time}
"""The processor's clock counts the work of this process and not its waiting for a processor that others use."""


class SessionError(RcilError):
    """ONNX Runtime does not take a graph."""

    exit_code = 5


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
    """Seconds of every run of every function; each round runs all of them once, in an order shuffled anew.

    Whatever slows the machine down for a while slows all of them down, and no one always runs after the same other.

    Args:
        functions: What to time, by name.
        rounds: Timed runs of each.
        warmup: Runs of each before the first timed one.
        seed: For the order.
        clock: Tells seconds.
    """
    names = list(functions)
    for _ in range(warmup):
        for name in names:
            functions[name]()
    times: dict[str, list[float]] = {name: [] for name in names}
    random = np.random.default_rng(seed)
    for _ in range(rounds):
        for index in random.permutation(len(names)):
            start = clock()
            functions[names[index]]()
            times[names[index]].append(clock() - start)
    return times


def percentiles(times: Sequence[float]) -> tuple[float, float, float]:
    """p50, p95 and p99, linearly interpolated."""
    p50, p95, p99 = np.percentile(times, (50, 95, 99))
    return float(p50), float(p95), float(p99)


def bootstrap_ratio(a: Sequence[float], b: Sequence[float], seed: int = 0) -> tuple[float, float, float]:
    """Median of `a` over median of `b`, and the ends of its 95 % interval.

    Rounds are resampled as pairs: a moment in which the machine was slow counts for both or for neither.

    Args:
        a: Times by round.
        b: Times of the same rounds.
        seed: For the resampling.
    """
    if len(a) != len(b) or not len(a):
        raise ValueError(f"{len(a)} and {len(b)} times are not pairs")
    pairs = np.array([a, b], np.float64)
    picked = np.random.default_rng(seed).integers(0, len(a), (RESAMPLES, len(a)))
    above, below = np.median(pairs[:, picked], axis=2)
    low, high = np.percentile(above / below, (2.5, 97.5))
    middle_a, middle_b = np.median(pairs, axis=1)
    return float(middle_a / middle_b), float(low), float(high)


def check_providers(providers: Sequence[str]) -> None:
    """Raise for an execution provider that this ONNX Runtime does not have."""
    available = ort.get_available_providers()
    for name in providers or ("",):
        if name not in available:
            raise ConfigError(
                f"ONNX Runtime has no execution provider '{name}' here",
                f"{did_you_mean(name, available)} Available: {', '.join(available)}.",
            )


def open_session(model: bytes | Path, threads: int, providers: Sequence[str] = (CPU,)) -> ort.InferenceSession:
    """A session that runs on the first of `providers`, or an error: ONNX Runtime itself would fall back silently.

    Its threads stop waiting busily when a run ends, so that they do not slow down what is timed next.
    """
    check_providers(providers)
    options = ort.SessionOptions()
    options.intra_op_num_threads = threads
    options.inter_op_num_threads = 1
    options.log_severity_level = 3
    options.add_session_config_entry("session.force_spinning_stop", "1")
    source = str(model) if isinstance(model, Path) else model
    try:
        session = ort.InferenceSession(source, options, providers=list(providers))
    except Exception as error:  # its exceptions have no common root
        raise SessionError(
            f"ONNX Runtime cannot load the graph: {str(error).strip().splitlines()[0]}",
            "Choose another precision or execution provider, or export it again.",
        ) from error
    if session.get_providers()[0] != providers[0]:
        raise ConfigError(
            f"{providers[0]} could not start; ONNX Runtime would have used {session.get_providers()[0]}",
            "Install the driver and libraries it needs, or choose another provider.",
        )
    return session


def random_image(shape: Sequence[int], kind: InputKind, seed: int = 0) -> NDArray[Any]:
    """Noise over the whole range, in all axes of a graph's input."""
    random = np.random.default_rng(seed)
    if kind == "uint8":
        return random.integers(0, 256, tuple(shape), dtype=np.uint8)
    return random.standard_normal(tuple(shape), dtype=np.float32)


def run_of(session: ort.InferenceSession, shape: Sequence[int], seed: int = 0) -> Callable[[], list[NDArray[Any]]]:
    """A function that runs the session once on noise; it returns all outputs.

    Args:
        session: Takes one image batch, uint8 or floating point.
        shape: All axes of it.
        seed: For the noise.
    """
    entry = session.get_inputs()[0]
    image = random_image(shape, "uint8" if entry.type == "tensor(uint8)" else "float", seed)
    if entry.type == "tensor(float16)":
        image = image.astype(np.float16)

    def run() -> list[NDArray[Any]]:
        outputs: list[NDArray[Any]] = session.run(None, {entry.name: image})
        return outputs

    return run
