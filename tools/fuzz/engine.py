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
"""In-memory file system, used if it exists, so that inputs are not written to a disk."""


@dataclass(frozen=True)
class Limits:
    """Limits for one input."""

    seconds: float = 10.0
    """Limit of processor time, which does not depend on the load of the machine; `supervise` limits wall-clock time."""
    grown_mb: float = 256.0
    """Limit of the growth of the process's peak resident memory."""


@dataclass(frozen=True)
class Failure:
    """An input that was neither accepted nor rejected properly."""

    input: int
    kind: Kind
    text: str
    """Description, with the traceback if there is one."""


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
    """Number of the input that is being read; -1 between inputs."""
    begun: float
    """Value of `time.monotonic` when its reading began."""
    accepted: int
    refused: int
    slowest_s: float
    slowest: int
    base_mb: float
    """Peak resident memory after the first input, when all libraries are loaded."""
    peak_mb: float


class HangError(BaseException):
    """Raised inside a reader that exceeds its time limit; the reader's own handlers do not catch it."""


def run_inputs(
    reader: Reader, numbers: Iterable[int], seed: int, limits: Limits, tally: Tally, report: Callable[[Failure], None]
) -> None:
    """Read every input of `numbers`; `tally` is updated, and `report` is called with every failure."""
    with _scratch() as folder, _alarm():
        for number in numbers:
            tally.begun, tally.current = time.monotonic(), number
            case_folder = folder / "case"
            case_folder.mkdir()
            write_case(case_of(reader, seed, number), case_folder)
            begun, before = time.process_time(), peak_mb()
            failure = _read(reader, case_folder, number, limits, tally)
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
            shutil.rmtree(case_folder)


def read_once(reader: Reader, case: Case) -> None:
    """Read one input without catching errors."""
    with _scratch() as folder:
        write_case(case, folder / "case")
        reader.read(folder / "case")


def peak_mb() -> float:
    """Peak resident memory of this process in MB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def _read(reader: Reader, folder: Path, number: int, limits: Limits, tally: Tally) -> Failure | None:
    try:
        _read_in_time(reader, folder, limits.seconds)
    except RcilError as error:
        if not error.message or not error.hint:
            return Failure(number, "no remedy", _formatted(error))
        tally.refused += 1
        return None
    except HangError as error:
        return Failure(number, "hang", _formatted(error))
    except Exception as error:
        return Failure(number, "exception", _formatted(error))
    tally.accepted += 1
    return None


def _read_in_time(reader: Reader, folder: Path, seconds: float) -> None:
    signal.setitimer(signal.ITIMER_PROF, seconds)
    try:
        reader.read(folder)
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)


def _formatted(error: BaseException) -> str:
    """Format the end of the traceback, with relative paths. Very long texts are shortened."""
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
        raise HangError("the time limit was exceeded")

    before = signal.signal(signal.SIGPROF, ring)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, before)
