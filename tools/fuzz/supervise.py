"""Runs readers in child processes, so that crashes, hangs and exhausted memory are reported as failures too."""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import resource
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from typing import Any

from tools.fuzz.engine import Failure, Limits, Tally, run_inputs
from tools.fuzz.readers import open_reader

GRACE = 6.0
"""Wall-clock limit of an input as a multiple of its limit of processor time; then its process is killed."""
ROOM = 2 * 2**30
"""Bytes of address space that a child process may allocate after its reader is loaded."""


@dataclass
class Result:
    """Results of one reader."""

    reader: str
    inputs: int = 0
    seconds: float = 0.0
    accepted: int = 0
    refused: int = 0
    failures: list[Failure] = field(default_factory=list)
    slowest_s: float = 0.0
    slowest: int = -1
    grown_mb: float = 0.0

    def as_document(self) -> dict[str, Any]:
        """The results as JSON-ready values."""
        return {
            "reader": self.reader,
            "inputs": self.inputs,
            "accepted": self.accepted,
            "refused": self.refused,
            "failures": [{"input": f.input, "kind": f.kind, "text": f.text} for f in self.failures],
            "seconds": round(self.seconds, 1),
            "slowest_ms": round(1000 * self.slowest_s, 1),
            "slowest_input": self.slowest,
            "grown_mb": round(self.grown_mb, 1),
        }


def supervise(
    reader: str, numbers: range, seed: int, limits: Limits, progress: Callable[[Result], None] = lambda result: None
) -> Result:
    """Run a reader's inputs in a child process; if an input ends it, a new process continues with the next input."""
    result = Result(reader)
    begun = time.monotonic()
    start = numbers.start
    while start < numbers.stop:
        start = _one_process(reader, range(start, numbers.stop), seed, limits, result, progress)
        result.inputs = start - numbers.start
        result.seconds = time.monotonic() - begun
        progress(result)
    return result


def _one_process(
    reader: str, numbers: range, seed: int, limits: Limits, result: Result, progress: Callable[[Result], None]
) -> int:
    """Return the number to continue with: the end of `numbers`, or the one after the input that ended the process."""
    context = multiprocessing.get_context("spawn")
    tally = context.RawValue(Tally)
    tally.current, tally.begun = -1, time.monotonic()
    ours, theirs = context.Pipe(duplex=False)
    process = context.Process(target=_work, args=(reader, numbers, seed, limits, tally, theirs), daemon=True)
    process.start()
    theirs.close()
    accepted, refused, begun = result.accepted, result.refused, time.monotonic() - result.seconds
    failure: Failure | None = None
    while process.is_alive():
        _listen(ours, result, 0.2)
        result.accepted, result.refused = accepted + tally.accepted, refused + tally.refused
        result.seconds = time.monotonic() - begun
        result.grown_mb = max(result.grown_mb, tally.peak_mb - tally.base_mb)
        progress(result)
        if tally.current >= 0 and time.monotonic() - tally.begun > GRACE * limits.seconds:
            failure = Failure(tally.current, "hang", "the process did not come back, and was ended")
            _end(process)
    process.join()
    _listen(ours, result, 0)
    result.accepted, result.refused = accepted + tally.accepted, refused + tally.refused
    result.grown_mb = max(result.grown_mb, tally.peak_mb - tally.base_mb)
    if tally.slowest_s > result.slowest_s:
        result.slowest_s, result.slowest = tally.slowest_s, tally.slowest
    if process.exitcode == 0:
        return numbers.stop
    if tally.current < 0:
        raise RuntimeError(f"the process of the reader '{reader}' ended with {process.exitcode} between two inputs")
    result.failures.append(failure or Failure(tally.current, "crash", f"the process ended with {process.exitcode}"))
    return int(tally.current) + 1


def _listen(pipe: Connection, result: Result, seconds: float) -> None:
    """Collect what the process reports; wait up to this many seconds for the first report."""
    try:
        while pipe.poll(seconds):
            result.failures.append(pipe.recv())
            seconds = 0
    except EOFError:
        time.sleep(seconds)


def _end(process: BaseProcess) -> None:
    process.terminate()
    process.join(5)
    if process.is_alive():
        process.kill()


def _work(reader: str, numbers: range, seed: int, limits: Limits, tally: Tally, pipe: Connection) -> None:
    """Main function of the child process, with one core and limited address space."""
    os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})
    opened = open_reader(reader)
    with open("/proc/self/statm", encoding="ascii") as status:  # noqa: PTH123 -- no file of ours
        size = int(status.read().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (size + ROOM, size + ROOM))
    with _silence():
        run_inputs(opened, numbers, seed, limits, tally, pipe.send)


@contextlib.contextmanager
def _silence() -> Iterator[None]:
    """Silence libpng, FFmpeg and OpenCV, which print a message about almost every input."""
    heard, silent = os.dup(2), os.open(os.devnull, os.O_WRONLY)
    os.dup2(silent, 2)
    try:
        yield
    finally:
        os.dup2(heard, 2)
