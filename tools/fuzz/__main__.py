"""Fuzz all readers with damaged and hostile inputs: `python -m tools.fuzz [READER ...]`.

Seed, reader and number determine an input. A reader must accept it or reject it with an `RcilError` that has a remedy
(the HTTP server: with a status below 500), within the time limit, and without allocating as much memory as a number in
the input claims. The exit code is 1 if a reader fails. `--keep` saves the inputs that fail; `--only` runs one input
again and shows its traceback.
"""

from __future__ import annotations

import argparse
import os
import platform
import sys
import time
from pathlib import Path

from rcil import __version__
from rcil.core.documents import write_json
from rcil.core.errors import did_you_mean
from tools.fuzz.cases import case_of, write_case
from tools.fuzz.engine import Limits, read_once
from tools.fuzz.readers import MODULES, open_reader
from tools.fuzz.supervise import Result, supervise

EVERY_S = 10.0
COLUMNS = f"{'reader':14} {'inputs':>8} {'accepted':>9} {'refused':>8} {'failures':>9} {'slowest':>10} {'memory':>9}"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("readers", nargs="*", metavar="READER", help=f"all by default: {', '.join(MODULES)}")
    parser.add_argument("--inputs", type=int, default=100_000, help="inputs per reader (100000)")
    parser.add_argument("--first", type=int, default=0, help="number of the first input (0)")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--seconds", type=float, default=10.0, help="time limit per input (10)")
    parser.add_argument("--json", type=Path, help="also write the table to this file, after every reader")
    parser.add_argument("--keep", type=Path, help="save the inputs that fail in this folder")
    parser.add_argument("--only", type=int, metavar="NUMBER", help="run this input of one reader in this process")
    arguments = parser.parse_args()
    unknown = [name for name in arguments.readers if name not in MODULES]
    if unknown:
        print(f"unknown reader '{unknown[0]}'. {did_you_mean(unknown[0], MODULES)}", file=sys.stderr)
        return 2
    os.environ["OMP_NUM_THREADS"] = "1"
    names = arguments.readers or list(MODULES)
    if arguments.only is not None:
        if len(arguments.readers) != 1:
            parser.error("--only takes one reader")
        reader = open_reader(names[0])
        read_once(reader, case_of(reader, arguments.seed, arguments.only))
        return 0
    results: list[Result] = []
    numbers = range(arguments.first, arguments.first + arguments.inputs)
    for name in names:
        results.append(supervise(name, numbers, arguments.seed, Limits(seconds=arguments.seconds), Progress()))
        if arguments.keep is not None:
            _keep(results[-1], arguments.seed, arguments.keep)
        if arguments.json is not None:
            write_json(arguments.json, _document(results, arguments.seed))
    print(COLUMNS)
    for result in results:
        print(line(result))
    return int(any(result.failures for result in results))


class Progress:
    """Print progress from time to time, and failures as they occur."""

    def __init__(self) -> None:
        self._next = time.monotonic()
        self._printed = 0

    def __call__(self, result: Result) -> None:
        """Print the progress if it is due."""
        for failure in result.failures[self._printed :]:
            self._printed += 1
            if self._printed <= 20:
                print(f"{result.reader} {failure.input}: {failure.kind}: {_last_line(failure.text)}", flush=True)
        if time.monotonic() >= self._next:
            self._next = time.monotonic() + EVERY_S
            done = result.accepted + result.refused + len(result.failures)
            print(
                f"{result.reader}: {done} inputs, {len(result.failures)} failures, {result.seconds:.0f} s", flush=True
            )


def line(result: Result) -> str:
    """Format one row of the table."""
    return (
        f"{result.reader:14} {result.inputs:8} {result.accepted:9} {result.refused:8} {len(result.failures):9} "
        f"{1000 * result.slowest_s:7.0f} ms {result.grown_mb:6.0f} MB"
    )


def _document(results: list[Result], seed: int) -> dict[str, object]:
    return {
        "rcil": __version__,
        "python": platform.python_version(),
        "machine": platform.machine(),
        "seed": seed,
        "readers": [result.as_document() for result in results],
    }


def _keep(result: Result, seed: int, folder: Path) -> None:
    """Save the files of every failed input with the error."""
    if not result.failures:
        return
    reader = open_reader(result.reader)
    for failure in result.failures:
        target = folder / result.reader / str(failure.input)
        write_case(case_of(reader, seed, failure.input), target / "files")
        (target / "failure.txt").write_text(f"{failure.kind}\n{failure.text}", encoding="utf-8")


def _last_line(text: str) -> str:
    return (text.strip().splitlines() or [""])[-1][:200]


if __name__ == "__main__":
    sys.exit(main())
