"""Run inputs one after the other and record outcome, time and memory."""

from __future__ import annotations

import contextlib
import ctypes
import resource
import shutil
import signal
import tempfile
import time
import traceback
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Literal

from rcil.core.errors import RcilError
from tools.fuzz.cases import Case, Reader, case_of, write_case

Kind = Literal["exception", "no remedy", "hang", "memory", "crash"]
ROOT = Path(__file__).parents[2]
MEMORY = Path("/dev/shm")
"""Where there is one, files never reach a disk."""


@dataclass(frozen=True)
class Limits:
    """Limits for one input."""

    seconds: float = 10.0
    """Of computing, whatever else the machine does. One that only waits is ended by `supervise`."""
    grown_mb: float = 256.0
    """How far it may raise the process's largest resident size."""


@dataclass(frozen=True)
class Failure:
    """An input that was neither accepted nor rejected properly."""

    input: int
    kind: Kind
    text: str
    """What happened, with the traceback where there is one."""


class Tally(ctypes.Structure):
    """Progress so far, in a form that another process can read."""

    _fields_ = (
        ("current", ctypes.c_long),
        ("begun", ctypes.c_double),
        ("accepted", ctypes.c_long),
        ("refused", ctypes.c_long),
        ("slowest_s", ctypes.c_double),
        ("slowest", ctypes.c_long),
        ("base_mb", ctypes.c_double),
        ("peak_mb", ctypes.c_double),
    )
    current: int
    """Input that is being read; -1 before the first and after the last."""
    begun: float
    """When its reading began, of `time.monotonic`."""
    accepted: int
    refused: int
    slowest_s: float
    slowest: int
    base_mb: float
    """Largest resident size once the reader had read its first input, when everything it needs is loaded."""
    peak_mb: float


class HangError(BaseException):
    """Raised inside a reader that exceeds its time limit; the reader's own handlers do not catch it."""


def run_inputs(
    reader: Reader,
    numbers: Iterable[int],
    seed: int,
    limits: Limits,
    tally: Tally,
    report: Callable[[Failure], None],
) -> None:
    """Give every input of `numbers` to the reader; `tally` and `report` hear what comes of it."""
    with _scratch() as folder, _alarm():
        for number in numbers:
            tally.begun, tally.current = time.monotonic(), number
            place = folder / "case"
            place.mkdir()
            write_case(case_of(reader, seed, number), place)
            begun, before = time.process_time(), peak_mb()
            failure = _read(reader, place, number, limits, tally)
            seconds, after = time.process_time() - begun, peak_mb()
            tally.current = -1
            if failure is None and tally.base_mb and after - before > limits.grown_mb:
                failure = Failure(number, "memory", f"the process grew by {after - before:.0f} MB")
            if failure is not None:
                report(failure)
            if seconds > tally.slowest_s:
                tally.slowest_s, tally.slowest = seconds, number
            tally.base_mb = tally.base_mb or after
            tally.peak_mb = after
            shutil.rmtree(place)


def read_once(reader: Reader, case: Case) -> None:
    """Give one input to the reader without catching errors."""
    with _scratch() as folder:
        write_case(case, folder / "case")
        reader.read(folder / "case")


def peak_mb() -> float:
    """The largest resident size that this process has had."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def _read(reader: Reader, place: Path, number: int, limits: Limits, tally: Tally) -> Failure | None:
    try:
        _read_in_time(reader, place, limits.seconds)
    except RcilError as error:
        if not error.message or not error.hint:
            return Failure(number, "no remedy", _told(error))
        tally.refused += 1
        return None
    except HangError as error:
        return Failure(number, "hang", _told(error))
    except Exception as error:
        return Failure(number, "exception", _told(error))
    tally.accepted += 1
    return None


def _read_in_time(reader: Reader, place: Path, seconds: float) -> None:
    signal.setitimer(signal.ITIMER_PROF, seconds)
    try:
        reader.read(place)
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)


def _told(error: BaseException) -> str:
    """The end of the traceback, with paths below the project; what a deep recursion or long string adds is left out."""
    text = "".join(traceback.format_exception(error, limit=-6)).encode("utf-8", "backslashreplace").decode()
    text = text.replace(f"{ROOT}/", "")
    return text if len(text) < 4000 else f"{text[:2000]}\n...\n{text[-2000:]}"


@contextlib.contextmanager
def _scratch() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="fuzz.", dir=MEMORY if MEMORY.is_dir() else None) as name:
        yield Path(name)


@contextlib.contextmanager
def _alarm() -> Iterator[None]:
    def ring(number: int, frame: FrameType | None) -> None:
        raise HangError("the time is up")

    before = signal.signal(signal.SIGPROF, ring)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, before)
