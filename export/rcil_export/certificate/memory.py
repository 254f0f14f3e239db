"""Peak memory of a delivered file against that of the plain network, each measured in a process of its own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from rcil.core.errors import RcilError
from rcil.core.log import STATUS, resident_bytes
from rcil_export.checks.result import Item
from rcil_export.runtime.sessions import open_session
from rcil_export.timing.interleaved import run_of

MEMORY_LIMIT = 0.05
"""Share by which the peak memory of the delivered file may be larger. Two runs of the same file differ by up to 2 %."""
MEMORY_GRAIN = 4 * 2**20
"""Bytes by which any two runs may differ: the allocator takes whole pages, and small networks have few."""
MEMORY_RUNS = 3
ALLOCATOR = {"MALLOC_MMAP_THRESHOLD_": str(128 * 2**10)}
"""Makes glibc return every large block to the system when it is freed. By default it raises this threshold as it goes
and keeps blocks for reuse, depending on which thread frees first: the peaks of one file then differ by a third."""


class MemoryMeasureError(RcilError):
    """Peak memory could not be measured."""

    exit_code = 5


def memory_item(own: Path, plain: Path, shape: tuple[int, ...], threads: int) -> Item:
    """Measure both files in turns, in separate processes; the smallest of up to `MEMORY_RUNS` peaks counts.

    Args:
        own: The delivered file.
        plain: The twin's graph, in the same precision.
        shape: All axes of the input.
        threads: Of ONNX Runtime.
    """
    title, required = "Peak memory over the plain network's", f"not above {1 + MEMORY_LIMIT:.2f}"

    def fits() -> bool:
        first, second = (min(values) for values in peaks.values())
        return first <= (1 + MEMORY_LIMIT) * second + MEMORY_GRAIN

    peaks: dict[str, list[int]] = {"delivered": [], "plain": []}
    try:
        for _ in range(MEMORY_RUNS):
            for name, path in (("delivered", own), ("plain", plain)):
                peaks[name].append(peak_memory(path, shape, threads))
            if fits():
                break
    except MemoryMeasureError as error:
        return Item("memory", title, None, f"not measured: {error.message}", required)
    first, second = (min(values) for values in peaks.values())
    return Item(
        "memory",
        title,
        fits(),
        f"{first / second:.3f} ({first / 2**20:.1f} and {second / 2**20:.1f} MiB)",
        required,
        {"ratio": first / second, "bytes": peaks},
        kind="measured",
    )


def peak_memory(model: Path, shape: Sequence[int], threads: int = 1) -> int:
    """Bytes by which loading and running `model` on the CPU raises the resident memory of a fresh process at its peak.

    The process reads its own peak from /proc: what `getrusage` reports includes the peak of the process that started
    it.

    Args:
        model: An ONNX file.
        shape: All axes of its input.
        threads: Of ONNX Runtime.
    """
    if not STATUS.exists():
        raise MemoryMeasureError(f"peak memory is read from {STATUS}, which this system does not have", "Use Linux.")
    request = json.dumps({"model": str(model), "shape": list(shape), "threads": threads})
    command = [sys.executable, "-m", __name__, request]
    done = subprocess.run(command, capture_output=True, text=True, check=False, env={**os.environ, **ALLOCATOR})
    if done.returncode:
        last = (done.stderr.strip().splitlines() or [f"exit code {done.returncode}"])[-1]
        raise MemoryMeasureError(
            f"{model} could not be run to measure its memory: {last}", "See what is wrong with it: rcil-export check."
        )
    return int(done.stdout)


def _measure(model: Path, shape: Sequence[int], threads: int) -> int:
    before = resident_bytes("VmRSS")
    session = open_session(model, threads)
    run_of(session, shape)()
    return resident_bytes("VmHWM") - before


if __name__ == "__main__":
    _request = json.loads(sys.argv[1])
    sys.stdout.write(str(_measure(Path(_request["model"]), _request["shape"], _request["threads"])))
