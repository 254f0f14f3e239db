"""Peak memory of running an ONNX file once, measured in a process of its own."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from rcil.core.errors import RcilError
from rcil.core.log import STATUS, resident_bytes
from rcil_export.runtime.sessions import open_session
from rcil_export.timing.interleaved import run_of


class MemoryMeasureError(RcilError):
    """Peak memory could not be measured."""

    exit_code = 5


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
    done = subprocess.run(command, capture_output=True, text=True, check=False)
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
