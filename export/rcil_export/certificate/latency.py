"""The latency of a delivered file relative to the plain network, with an interval that also holds on busy machines.

Consecutive runs are slowed down by the same events, and the speed of a session depends on the addresses of its buffers
for as long as it lives. So runs are not independent observations, but pairs of fresh sessions are. Each pair gives one
number, the median of its paired log ratios, and the interval is Student's t interval over these numbers.
`tools/bench/latency_coverage.py` measures how often it contains the true ratio of two identical graphs.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np

from rcil_export.checks.result import Item
from rcil_export.runtime.providers import CPU
from rcil_export.runtime.sessions import open_session
from rcil_export.timing.interleaved import CLOCKS, Clock, LatencyOptions, interleaved_by, run_of

LATENCY_LIMIT = 0.02
"""Share by which the delivered graph may be slower than the plain graph."""
MAX_SESSIONS, MIN_SESSIONS = 8, 4
"""Pairs of fresh sessions; large networks, whose sessions take long to open, get fewer."""
MIN_ROUNDS = 3
"""Runs of each graph in a pair of sessions."""
SLOW_SECONDS = 1.0
"""If one run of both graphs takes more processor time than this, the first runs count too, because the work that a
session does once is negligible: ResNet-18 at 512x512 takes 0.422 s in its first run and 0.419, 0.418, 0.417 s in the
next."""
LATENCY_SECONDS = 30.0
"""After this time no further pair is opened, if there are at least `MIN_SESSIONS`."""
STUDENT = {4: (3.182, 12.924), 5: (2.776, 8.610), 6: (2.571, 6.869), 7: (2.447, 5.959), 8: (2.365, 5.408)}
"""Two-sided quantiles of Student's t by the number of pairs, for 95 % and 99.9 %."""

Runs = dict[str, Callable[[], object]]
"""The graphs to time, ready to run, by name: `delivered` and `plain`."""


@dataclass(frozen=True)
class Ratio:
    """The time of the delivered graph divided by that of the plain graph."""

    clock: Clock
    ratio: float
    low: float
    high: float
    """Ends of the 95 % interval."""
    surely: float
    """Lower end of the 99.9 % interval: with the 95 % interval, one export in forty would fail by chance."""
    sessions: tuple[float, ...]
    """The median ratio of each pair of sessions."""

    @property
    def passed(self) -> bool | None:
        """True if the 95 % interval is within the limit, False if the 99.9 % interval is above it, otherwise None."""
        if self.high <= 1 + LATENCY_LIMIT:
            return True
        return False if self.surely > 1 + LATENCY_LIMIT else None


def ratio_of(log_ratios: Sequence[Sequence[float]], clock: Clock) -> Ratio:
    """The ratio and its intervals from the logarithms of paired ratios, by pair of sessions.

    Args:
        log_ratios: Of `MIN_SESSIONS` to `MAX_SESSIONS` pairs, each with the log ratios of its rounds.
        clock: The clock that measured them.
    """
    medians = np.array([np.median(values) for values in log_ratios])
    middle, error = float(medians.mean()), float(medians.std(ddof=1) / math.sqrt(len(medians)))
    likely, surely = (quantile * error for quantile in STUDENT[len(medians)])
    low, high, lowest = (math.exp(end) for end in (middle - likely, middle + likely, middle - surely))
    return Ratio(clock, math.exp(middle), low, high, lowest, tuple(map(float, np.exp(medians))))


def latency_item(own: Path, plain: Path, shape: tuple[int, ...], options: LatencyOptions) -> Item:
    """Time both graphs in ONNX Runtime, in pairs of fresh sessions.

    Args:
        own: The delivered file.
        plain: The twin's graph, in the same precision.
        shape: All axes of the input.
        options: How to time; its rounds are shared by the pairs of sessions.
    """

    def opened(turn: int) -> Runs:
        files = [("delivered", own), ("plain", plain)]
        if np.random.default_rng((options.seed, turn)).integers(2):
            files.reverse()
        sessions = {name: open_session(path, options.threads, options.providers) for name, path in files}
        return {name: run_of(session, shape, options.seed) for name, session in sessions.items()}

    times = time_in_sessions(opened, options)
    clock = clock_for(options)
    ratios = [
        [math.log(a / b) for a, b in zip(pair[clock]["delivered"], pair[clock]["plain"], strict=True)] for pair in times
    ]
    wall = {name: [1000 * value for pair in times for value in pair["wall"][name]] for name in ("delivered", "plain")}
    return latency_verdict(ratio_of(ratios, clock), options, wall)


def clock_for(options: LatencyOptions) -> Clock:
    """Processor time on a CPU, because programs wait for each other on a shared machine; otherwise the wall clock."""
    return "processor" if options.providers[0] == CPU else "wall"


def time_in_sessions(
    opened: Callable[[int], Runs], options: LatencyOptions, seconds: float = LATENCY_SECONDS
) -> list[dict[Clock, dict[str, list[float]]]]:
    """Seconds by pair of sessions, clock and graph.

    Args:
        opened: Opens fresh sessions of both graphs; receives the number of the pair.
        options: How to time.
        seconds: When to stop opening further pairs.
    """
    start = time.perf_counter()
    rounds = max(MIN_ROUNDS, -(-options.rounds // MAX_SESSIONS))
    times: list[dict[Clock, dict[str, list[float]]]] = []
    while len(times) < MAX_SESSIONS:
        turn = len(times)
        times.append(_timed(opened(turn), rounds, options, turn))
        if len(times) >= MIN_SESSIONS and time.perf_counter() - start > seconds:
            break
    return times


def _timed(runs: Runs, rounds: int, options: LatencyOptions, turn: int) -> dict[Clock, dict[str, list[float]]]:
    """Time one pair of sessions and release it, because the next pair needs the memory.

    The first rounds warm up and are dropped, unless a round is slow.
    """
    warmup, start = max(options.warmup, 1), time.process_time()
    first: list[float] = []

    def enough(done: int) -> bool:
        first.append(time.process_time() - start)
        return done == rounds and first[0] > SLOW_SECONDS

    times = interleaved_by(CLOCKS, runs, rounds + warmup, 0, options.seed + turn, enough)
    return {clock: {name: values[-rounds:] for name, values in found.items()} for clock, found in times.items()}


def latency_verdict(ratio: Ratio, options: LatencyOptions, wall_ms: dict[str, list[float]]) -> Item:
    """The verdict; it is undecided if the interval contains the limit.

    Args:
        ratio: The measured ratio.
        options: How it was measured.
        wall_ms: Milliseconds of every run by the wall clock, by graph; for the record.
    """
    undecided = ratio.passed is None
    clock = "processor time" if ratio.clock == "processor" else "time"
    text = (
        f"{clock} x {ratio.ratio:.3f} (95 % interval {ratio.low:.3f} to {ratio.high:.3f}, "
        f"{len(ratio.sessions)} pairs of sessions)"
    )
    if undecided:
        text += "; undecided: try again on a quiet machine or with more --rounds"
    return Item(
        "latency",
        "Latency over the plain network's",
        ratio.passed,
        text,
        f"the whole interval not above {1 + LATENCY_LIMIT:.2f}",
        {
            **asdict(options),
            **asdict(ratio),
            "times_ms": {name: [round(value, 3) for value in values] for name, values in wall_ms.items()},
        },
        kind="measured",
        undecided=undecided,
    )
