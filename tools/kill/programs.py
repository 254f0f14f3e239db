"""Starting the real command lines, and killing them with all their children."""

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
"""Seconds between two looks at a process."""
Condition = Callable[[], bool]
Words = list[str | Path]
"""A module and its arguments."""


@dataclass(frozen=True)
class Pace:
    """An undisturbed run: when its first output appeared, and when it ended, in seconds from its start."""

    first: float
    total: float


@dataclass(frozen=True)
class Moment:
    """When to kill: so long after the start, or after the first output has appeared."""

    seconds: float
    after_output: bool


@dataclass(frozen=True)
class Ending:
    """How a run ended."""

    killed: bool
    code: int
    said: str
    """The end of what it printed."""
    after_output: bool = False
    """Whether the first output was there when it was killed."""

    @property
    def problem(self) -> str | None:
        """What is wrong with a run that was not killed."""
        return None if self.killed or self.code == 0 else f"exit code {self.code}: {self.said}"


def start(words: Words, log: Path) -> subprocess.Popen[bytes]:
    """A module of this Python, in a process group of its own, with one thread; what it says goes to `log`."""
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
    """SIGKILL for the whole group, if it still lives; returns when the process is gone."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def measure(words: Words, log: Path, appeared: Condition) -> Pace:
    """Run undisturbed; raises if that fails, since there is nothing to compare with then."""
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
    """Half of the moments anywhere in a run, half in what follows its first output, where files are written."""
    if rng.random() < 0.5:
        return Moment(rng.uniform(0, pace.total), False)
    return Moment(rng.uniform(0, pace.total - pace.first), True)


def run(words: Words, log: Path, moment: Moment | None, appeared: Condition) -> Ending:
    """Run until the moment comes, or to the end if it does not come before, or if there is none."""
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
    """Whether a file has been written to, or made, since this was called."""
    before = _state_of(path)
    return lambda: _state_of(path) != before


def _state_of(path: Path) -> tuple[int, int] | None:
    try:
        status = path.stat()
    except OSError:
        return None
    return status.st_ino, status.st_mtime_ns


def tail(log: Path) -> str:
    """The last words of a log, on one line."""
    return " | ".join(log.read_text(encoding="utf-8", errors="replace").strip().splitlines()[-4:])
