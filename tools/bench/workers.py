"""Worker processes that measure on command, so that variants which need their own process can be interleaved."""

from __future__ import annotations

import contextlib
import json
import os
import resource
import statistics
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

WORKER = Path(__file__).with_name("step_worker.py")
COMPETITOR = "while True: sum(range(10**6))"


class Worker:
    """A `step_worker.py` that waits for requests; it uses no processor time between them."""

    def __init__(self, options: Sequence[str], environment: Mapping[str, str], path: Sequence[Path] = ()) -> None:
        variables = {**os.environ, **environment}
        if path:
            variables["PYTHONPATH"] = os.pathsep.join(map(str, path))
        command = [sys.executable, str(WORKER), *options]
        self.process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=variables
        )

    def ask(self, **request: Any) -> dict[str, Any]:
        """The answer to one request."""
        assert self.process.stdin is not None and self.process.stdout is not None
        self.process.stdin.write(json.dumps(request) + "\n")
        self.process.stdin.flush()
        answer: dict[str, Any] = json.loads(self.process.stdout.readline())
        return answer

    def close(self) -> None:
        """End the process."""
        assert self.process.stdin is not None
        self.process.stdin.close()
        self.process.wait()


@contextlib.contextmanager
def competitors(count: int) -> Iterator[None]:
    """Keep the machine busy with `count` processes of one thread each."""
    running = [subprocess.Popen([sys.executable, "-c", COMPETITOR]) for _ in range(count)]
    try:
        yield
    finally:
        for process in running:
            process.kill()
            process.wait()


def spread(values: Sequence[float]) -> dict[str, float]:
    """Median and quartiles."""
    low, middle, high = statistics.quantiles(values, n=4, method="inclusive") if len(values) > 1 else [*values] * 3
    return {"median": middle, "low": low, "high": high}


def shown(values: Mapping[str, float]) -> str:
    """A spread as text: median (quartiles)."""
    return f"{values['median']:.2f} ({values['low']:.2f} to {values['high']:.2f})"


def processor_seconds() -> float:
    """Processor time of this process and of its finished children."""
    usages = (resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return sum(usage.ru_utime + usage.ru_stime for usage in usages)
