"""Runs of a comparison side by side, each in a process of its own with its share of the threads.

On a CPU, two runs with one thread each see more images per second than one run with two threads.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import sys
import time
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import NoReturn

from rcil.core.errors import RcilError, TrainingError
from rcil.core.interrupts import Interrupted, interruptible
from rcil.core.log import Notify
from rcil.hardware.cpu import tune_process
from rcil.tasks.task import Task
from rcil.training.loop import Event
from rcil.training.run import run_task

HEARTBEAT = 30.0
"""Seconds between two lines on how far the runs are."""


@dataclass(frozen=True)
class Run:
    """One run of a comparison."""

    title: str
    task: Task
    folder: Path
    group: Hashable
    """Runs of one group train step 0 alike. The first one trains it, and the others wait for it."""


@dataclass(frozen=True)
class _Piece:
    """A run, or only its step 0, which others wait for."""

    run: Run
    needs: Path | None = None
    """The run whose step 0 must be there, which may be the same run; None for a run that trains its own."""
    only_first: bool = False

    @property
    def done(self) -> bool:
        return self.only_first and _has_first(self.run.folder)

    @property
    def ready(self) -> bool:
        return self.needs is None or _has_first(self.needs)


@dataclass
class _Started:
    piece: _Piece
    process: BaseProcess
    events: Connection
    last: Event | None = None


def run_side_by_side(runs: Sequence[Run], jobs: int, announce: Notify) -> None:
    """Finish all runs, `jobs` at a time; finished ones take no time, and interrupted ones continue.

    Args:
        runs: The runs, most important first.
        jobs: Number of processes.
        announce: Called at the start and the end of every run, and every half minute.
    """
    waiting, running = _pieces(runs), list[_Started]()
    said = time.monotonic()
    try:
        while waiting or running:
            waiting = [piece for piece in waiting if not piece.done]
            while len(running) < jobs and (piece := next((p for p in waiting if p.ready), None)) is not None:
                waiting.remove(piece)
                announce(f"{piece.run.title}: {'step 0' if piece.only_first else 'all steps'}")
                running.append(_start(piece, jobs))
            _listen(running)
            for ended in [each for each in running if each.process.exitcode is not None]:
                running.remove(ended)
                _check(ended)
                announce(f"{ended.piece.run.title}: {'step 0 is' if ended.piece.only_first else 'all steps are'} done")
            if running and time.monotonic() - said >= HEARTBEAT:
                said = time.monotonic()
                announce("; ".join(_progress(each) for each in running))
    finally:
        for each in running:
            each.process.terminate()  # the run saves its state
        for each in running:
            each.process.join()


def _pieces(runs: Sequence[Run]) -> list[_Piece]:
    """Every step 0 that several runs share first, then all runs."""
    leaders: dict[Hashable, Path] = {}
    for run in runs:
        leaders.setdefault(run.group, run.folder)
    shared = [run for run in runs if leaders[run.group] == run.folder and sum(r.group == run.group for r in runs) > 1]
    alone = {run.group for run in runs} - {run.group for run in shared}
    return [
        *(_Piece(run, only_first=True) for run in shared),
        *(_Piece(run, leaders[run.group]) for run in runs if run.group not in alone),
        *(_Piece(run) for run in runs if run.group in alone),
    ]


def _has_first(folder: Path) -> bool:
    return (folder / "step0.safetensors").exists()


def _start(piece: _Piece, jobs: int) -> _Started:
    context = multiprocessing.get_context("spawn")
    receiver, sender = context.Pipe(duplex=False)
    process = context.Process(target=_work, args=(*_arguments(piece, jobs), sender))
    process.start()
    sender.close()
    return _Started(piece, process, receiver)


def _arguments(piece: _Piece, jobs: int) -> tuple[Task, Path, Path | None, bool, int]:
    """Those of `_work` for a piece."""
    leader = None if piece.needs == piece.run.folder else piece.needs
    threads = max(1, len(os.sched_getaffinity(0)) // jobs)
    return piece.run.task, piece.run.folder, leader, piece.only_first, threads


def _listen(running: Sequence[_Started]) -> None:
    """Wait until a run ends, a second at most, and read the newest event of each."""
    wait([each.process.sentinel for each in running], timeout=1)
    for each in running:
        try:
            while each.events.poll():
                each.last = each.events.recv()
        except EOFError:
            pass


def _check(ended: _Started) -> None:
    if code := ended.process.exitcode:
        raise TrainingError(
            f"{ended.piece.run.title} ended with exit code {code}",
            f"The reason is above; the run is in {ended.piece.run.folder}. The same command continues the others.",
        )


def _progress(run: _Started) -> str:
    title, event = run.piece.run.title, run.last
    if event is None:
        return f"{title}: preparing"
    return f"{title}: step {event.step}, iteration {event.done} of {event.total}"


def _work(task: Task, folder: Path, step0_of: Path | None, only_first: bool, threads: int, events: Connection) -> None:
    """Train in a new process. Ctrl-C reaches all processes of a terminal; the parent says when to stop."""
    import torch

    signal.signal(signal.SIGINT, signal.SIG_IGN)
    tune_process()
    torch.set_num_threads(threads)
    sent = 0.0

    def send(event: Event) -> None:
        nonlocal sent
        if time.monotonic() - sent >= 1:
            sent = time.monotonic()
            events.send(event)

    try:
        with interruptible():
            run_task(task, folder, resume=True, step0_of=step0_of, only_first=only_first, listen=send)
    except Interrupted as stop:
        sys.exit(stop.exit_code)
    except RcilError as error:
        _fail(error)


def _fail(error: RcilError) -> NoReturn:
    print(error, file=sys.stderr)  # noqa: T201 -- the parent has the same standard error
    sys.exit(error.exit_code)
