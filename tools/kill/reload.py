"""Kills `rcil-serve http` while its model is replaced. It must start again, and a reload must lose no request.

The server is killed while it starts, answers, receives uploads and reloads. Every fourth kill hits an `rcil-export`
that writes the model's file.
"""

from __future__ import annotations

import itertools
import random
import re
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import cv2

from rcil.core.files import copy_file, sha256_of
from rcil.scenes import make_scene
from tools.kill.clients import ask, clients
from tools.kill.models import write_checkpoint
from tools.kill.programs import POLL, Ending, Moment, Pace, Words, choose, kill, measure, run, start, tail
from tools.kill.tally import Tally, left_in
from tools.kill.whole import problem_of

SIZE = (96, 128)
BUSY = 1.5
"""Maximum seconds that a server answers and reloads before it is killed."""
EXPORTS = 4
"""Every Nth kill hits the export."""
WRITING = 0.6
"""Part of an export's duration before which it is not killed, because it only reads until then."""
RELOADS = 20
"""Number of reloads with clients and without a kill."""


def kill_server(folder: Path, tally: Tally, rng: random.Random) -> None:
    """Kill servers and exports, then reload a running server."""
    service = folder / "service"
    service.mkdir()
    log, model = folder / "log", service / "model.onnx"
    checkpoints = [write_checkpoint(folder / f"{seed}.safetensors", seed) for seed in range(2)]
    exported = [path.with_suffix(".onnx") for path in checkpoints]
    for checkpoint, path in zip(checkpoints, exported, strict=True):
        pace = measure(_export(checkpoint, path), log, lambda: False)
    known = {sha256_of(path) for path in exported}
    image = cv2.imencode(".png", make_scene(0, 0, size=SIZE).image)[1].tobytes()
    shutil.copyfile(exported[0], model)
    starts = _starting(model, folder / "server", image, known)
    tally.seconds_undisturbed = starts
    while tally.left:
        if tally.kills % EXPORTS == EXPORTS - 1:
            moment = Moment(rng.uniform(WRITING * pace.total, pace.total), after_output=False)
            ending = run(_export(rng.choice(checkpoints), model), log, moment, lambda: False)
            tally.note("the export", [ending.problem] if ending.problem else [])
        else:
            moment = choose(Pace(starts, starts + BUSY), rng)
            ending = _kill_busy(model, exported, folder / "server", image, known, moment, tally)
        if ending.killed:
            tally.killed(after_output=ending.after_output)
            tally.left_after_kills += left_in(service)
        tally.note("after it", model_problems(model, known))
    _reload_alive(model, exported, folder / "server", image, known, tally)
    tally.left_in_the_end = left_in(service)
    tally.finished += 1


def model_problems(model: Path, known: set[str]) -> list[str]:
    """Return what is wrong with a model file that was being replaced."""
    if not model.exists():
        return ["the model is gone"]
    problem = problem_of(model)
    if problem is not None:
        return [problem]
    return [] if sha256_of(model) in known else ["the model is not one of those that were written"]


def _starting(model: Path, log: Path, image: bytes, known: set[str]) -> float:
    """Seconds from the start of a server to its first response."""
    begun = time.monotonic()
    with _server(model, log) as process:
        port = _port(process, log)
        assert port is not None, tail(log)
        problem = ask(port, image, known)
        assert problem is None, problem
    return time.monotonic() - begun


def _kill_busy(
    model: Path, exported: list[Path], log: Path, image: bytes, known: set[str], moment: Moment, tally: Tally
) -> Ending:
    """Start a server and keep it busy until it is killed."""
    until = time.monotonic() + moment.seconds
    with _server(model, log) as process:
        port = _port(process, log, None if moment.after_output else until)
        if port is None:
            problem = f"the server did not start: {tail(log)}"
            tally.note("the next start", [] if process.poll() is None else [problem])
        else:
            if moment.after_output:
                until = time.monotonic() + moment.seconds
            with clients(port, image, known) as answers:
                for source in itertools.cycle(exported):
                    if time.monotonic() >= until:
                        break
                    _swap(process, model, source)
                    time.sleep(max(0, min(0.1, until - time.monotonic())))
                lost = list(answers.broken)
                if process.poll() is not None:
                    tally.note("before it", [f"the server ended by itself: {tail(log)}"])
                kill(process)
            tally.requests += answers.served
            tally.note("before it", answers.wrong + lost)
    return Ending(True, 0, "", after_output=port is not None)


def _reload_alive(model: Path, exported: list[Path], log: Path, image: bytes, known: set[str], tally: Tally) -> None:
    """Reload repeatedly while clients send requests; each request must be answered."""
    with _server(model, log) as process:
        port = _port(process, log)
        if port is None:
            tally.note("the next start", [f"the server did not start: {tail(log)}"])
            return
        with clients(port, image, known) as answers:
            for number, source in enumerate(itertools.islice(itertools.cycle(exported), RELOADS), 1):
                _swap(process, model, source)
                while _reloads(log) < number and process.poll() is None and answers.served < 100_000:
                    time.sleep(0.02)
        tally.reloads, tally.requests = _reloads(log), tally.requests + answers.served
        tally.note("reloading", answers.wrong + answers.broken)
        if tally.reloads != RELOADS:
            tally.note("reloading", [f"{tally.reloads} of {RELOADS} reloads were done: {tail(log)}"])


def _swap(process: subprocess.Popen[bytes], model: Path, source: Path) -> None:
    """Replace the model file atomically, and send SIGHUP to the server."""
    copy_file(source, model)
    process.send_signal(signal.SIGHUP)


def _reloads(log: Path) -> int:
    return log.read_text(encoding="utf-8", errors="replace").count(" serves step ")


@contextmanager
def _server(model: Path, log: Path) -> Iterator[subprocess.Popen[bytes]]:
    words: Words = ["rcil_serve", "http", "--model", model, "--port", "0", "--threads", "1", "--device", "cpu"]
    process = start(words, log)
    try:
        yield process
    finally:
        if process.poll() is None:
            kill(process)


def _port(process: subprocess.Popen[bytes], log: Path, until: float | None = None) -> int | None:
    """Port that a server listens on; None if it ended first, or does not listen at the time `until`."""
    while process.poll() is None and (until is None or time.monotonic() < until):
        found = re.search(r"listening on http://[^:]+:(\d+)", log.read_text(encoding="utf-8"))
        if found:
            return int(found[1])
        time.sleep(POLL)
    return None


def _export(checkpoint: Path, path: Path) -> Words:
    return ["rcil_export", "onnx", checkpoint, "-o", path, "--size", "x".join(map(str, SIZE))]
