"""Readers that misbehave at input 3, for tests of the fuzzer."""

from __future__ import annotations

import os
import signal
from pathlib import Path

from rcil.core.errors import RcilError
from tools.fuzz.cases import Reader

BAD = 3
_kept: list[bytearray] = []


def _reader(misbehave) -> Reader:
    """Accepts even inputs and refuses odd ones, but for one."""
    numbers = iter(range(10**6))

    def read(folder: Path) -> None:
        number = int((folder / "number").read_bytes())
        if number == BAD:
            misbehave()
        if number % 2:
            raise RcilError("odd", "Give an even number.")

    def make(random) -> dict[str, bytes]:
        return {"number": str(next(numbers)).encode()}

    return Reader("broken", make, read)


def _key_error() -> None:
    raise KeyError("surprise")


def _no_remedy() -> None:
    raise RcilError("wrong")


def _loop() -> None:
    while True:
        pass


def _deaf_loop() -> None:
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGPROF})
    _loop()


def raises() -> Reader:
    return _reader(_key_error)


def has_no_remedy() -> Reader:
    return _reader(_no_remedy)


def hangs() -> Reader:
    return _reader(_loop)


def hangs_for_good() -> Reader:
    return _reader(_deaf_loop)


def eats_memory() -> Reader:
    return _reader(lambda: _kept.append(bytearray(b"x" * 400_000_000)))


def crashes() -> Reader:
    return _reader(os.abort)


def behaves() -> Reader:
    return _reader(lambda: None)
