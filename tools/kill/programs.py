"""Starts the real commands, and kills them with all their child processes."""

from __future__ import annotations

import contextlib
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

POLL = 0.004
"""Seconds between two checks of a process."""
Condition = Callable[[], bool]
Words = list[str | Path]
"""Name of a module, and its arguments."""


@dataclass(frozen=True)
class Pace:
    """Times of an undisturbed run in seconds since its start: the first output, and the end."""

    first: float
    total: float


@dataclass(frozen=True)
class Moment:
    """When to kill: seconds after the start, or after the first output."""

    seconds: float
    after_output: bool


@dataclass(frozen=True)
class Ending:
    """How a run ended."""

    killed: bool
    code: int
    said: str
    """Last lines that it printed."""
    after_output: bool = False
    """Whether the first output existed when it was killed."""

    @property
    def problem(self) -> str | None:
        """Description of the failure of a run that was not killed; None if it succeeded."""
        return None if self.killed or self.code == 0 else f"exit code {self.code}: {self.said}"


def start(words: Words, log: Path) -> subprocess.Popen[bytes]:
    """Start a module in its own process group with one thread; its output goes to `log`."""
    with log.open("wb") as out:
        return subprocess.Popen(
            [sys.executable, "-m", *map(str, words)],
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            env={**os.environ, "OMP_NUM_THREADS": "1"},
        )


def kill(process: subprocess.Popen[bytes]) -> None:
    """Send SIGKILL to the whole group if it still runs, and wait for its end."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def measure(words: Words, log: Path, appeared: Condition) -> Pace:
    """Time an undisturbed run; raise if it fails, because there is nothing to compare with then."""
    begun = time.monotonic()
    process = start(words, log)
    first = None
    while process.poll() is None:
        if first is None and appeared():
            first = time.monotonic() - begun
        time.sleep(POLL)
    total = time.monotonic() - begun
    if process.returncode:
        raise RuntimeError(f"the undisturbed run failed: {tail(log)}")
    return Pace(total if first is None else first, total)


def choose(pace: Pace, rng: random.Random) -> Moment:
    """Choose a moment: half of them are anywhere in a run, half after the first output, when files are written."""
    if rng.random() < 0.5:
        return Moment(rng.uniform(0, pace.total), False)
    return Moment(rng.uniform(0, pace.total - pace.first), True)


def run(words: Words, log: Path, moment: Moment | None, appeared: Condition) -> Ending:
    """Run until the moment, or to the end if the run is shorter or no moment is given."""
    process = start(words, log)
    since = time.monotonic()
    waits = moment is not None and moment.after_output
    while process.poll() is None:
        if waits and appeared():
            waits, since = False, time.monotonic()
        if moment is not None and not waits and time.monotonic() - since >= moment.seconds:
            there = appeared()
            kill(process)
            return Ending(True, process.returncode, tail(log), there)
        time.sleep(POLL)
    return Ending(False, process.returncode, tail(log))


def touched(path: Path) -> Condition:
    """Return a condition: whether a file was written or created since this call."""
    before = _state_of(path)
    return lambda: _state_of(path) != before


def _state_of(path: Path) -> tuple[int, int] | None:
    try:
        status = path.stat()
    except OSError:
        return None
    return status.st_ino, status.st_mtime_ns


def tail(log: Path) -> str:
    """The last lines of a log, joined into one."""
    return " | ".join(log.read_text(encoding="utf-8", errors="replace").strip().splitlines()[-4:])
