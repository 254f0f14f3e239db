"""Start the runtimes of deployed models, each in its own process.

A compiled library may fail to load or crash the process, and only trying it tells. As a script
(`python -m rcil.cli.runtime_probes KIND NAME`) this module starts one runtime and prints the result as JSON.
"""

from __future__ import annotations

import base64
import importlib
import json
import re
import signal
import subprocess
import sys
from dataclasses import asdict, dataclass, replace
from typing import Any, Literal

from rcil.core.errors import first_line
from rcil.hardware.devices import driver_gpus

TIMEOUT = 120
"""Seconds. The first start of CUDA on a machine may compile kernels."""
NEGATION = base64.b64decode("CAg6NgoLCgF4EgF5IgNOZWcSBXByb2JlWg8KAXgSCgoICAESBAoCCAFiDwoBeRIKCggIARIECgIIAUIECgAQEg==")
"""An ONNX model y = -x with a float [1] input, stored here so that the onnx package is not needed."""


State = Literal["works", "missing", "broken"]


@dataclass(frozen=True)
class Outcome:
    """The result of an attempt to start a runtime."""

    state: State
    detail: str


class AbsentError(Exception):
    """The package is installed, but the hardware or driver that it needs is missing."""


def attempt(kind: str, name: str) -> Outcome:
    """Start a runtime in a separate process, so that a crash does not affect this one.

    Args:
        kind: A key of `STARTERS`.
        name: Name of the execution provider or of the Python module.
    """
    command = [sys.executable, "-m", "rcil.cli.runtime_probes", kind, name]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT, check=False)
    except subprocess.TimeoutExpired:
        return Outcome("broken", f"did not start within {TIMEOUT} s")
    return outcome_of(done.returncode, done.stdout, done.stderr)


def outcome_of(code: int, output: str, errors: str) -> Outcome:
    """Interpret the exit code and output of a probe process; standard error gives the reason of a failure."""
    reason = _reason(errors)
    if code < 0:
        return Outcome("broken", f"ended its process ({signal.Signals(-code).name}){reason}")
    try:
        document = json.loads(output.strip().splitlines()[-1])
        found = Outcome(document["state"], str(document["detail"]))
    except (LookupError, TypeError, ValueError):
        return Outcome("broken", f"ended its process (exit code {code}){reason}")
    return replace(found, detail=f"{found.detail}{reason}") if found.state == "broken" else found


def _reason(errors: str) -> str:
    """The missing library, or the first error message of a log without its prefix; empty if there is none."""
    if missing := re.search(r"[^\s/]+\.so[\d.]*: cannot open shared object file", errors):
        return f": {missing[0]}"
    lines = (re.sub(r"\x1b\[[0-9;]*m", "", line).strip() for line in errors.splitlines())
    message = next((line for line in lines if re.search(r"error|fail|cannot open", line, re.IGNORECASE)), "")
    text = re.sub(r"^[\d\-:. ]*(\[[^\]]*\]\s*)*", "", message)
    return f": {text[:300]}" if text else ""


def start_provider(runtime: Any, name: str) -> str:
    """Run a one-node graph with an execution provider of ONNX Runtime and return the version.

    ONNX Runtime falls back to the CPU if a provider fails to start, so the session is asked which one it uses.
    """
    import numpy as np

    if name.startswith(("CUDA", "Tensorrt")) and hasattr(runtime, "preload_dlls"):
        runtime.preload_dlls()
    session = runtime.InferenceSession(NEGATION, providers=[name])
    (answer,) = session.run(None, {"x": np.ones(1, np.float32)})
    used = session.get_providers()[0]
    if used != name:
        raise RuntimeError(f"listed, but did not start; ONNX Runtime used {used} instead")
    if float(answer[0]) != -1:
        raise RuntimeError(f"started, but computes -1 x 1 = {float(answer[0]):g}")
    return str(runtime.__version__)


def start_builder(trt: Any) -> str:
    """Start the TensorRT builder and return its version."""
    if trt.Builder(trt.Logger(trt.Logger.ERROR)) is None:
        raise RuntimeError("the builder does not start")
    builds = "builds without a GPU" if hasattr(trt, "ComputeCapability") else "builds on the GPU that runs it"
    return f"{trt.__version__}, builder started, {builds}"


def start_runtime(trt: Any) -> str:
    """Start the TensorRT runtime on a GPU and return its version."""
    if trt.Runtime(trt.Logger(trt.Logger.ERROR)) is None:
        raise RuntimeError("the runtime does not start")
    count, reason = driver_gpus()
    if not count:
        raise AbsentError(f"the runtime starts, but engines cannot run: {reason}")
    return f"{trt.__version__}, runtime started, {count} GPU{'s' * (count > 1)}"


STARTERS = {
    "provider": lambda name: start_provider(importlib.import_module("onnxruntime"), name),
    "builder": lambda name: start_builder(importlib.import_module(name)),
    "runtime": lambda name: start_runtime(importlib.import_module(name)),
}


def main(kind: str, name: str) -> None:
    """Start one runtime and print the outcome as JSON."""
    try:
        found = Outcome("works", STARTERS[kind](name))
    except AbsentError as error:
        found = Outcome("missing", str(error))
    except Exception as error:
        found = Outcome("broken", first_line(error))
    print(json.dumps(asdict(found)), flush=True)  # noqa: T201 -- read by `attempt`


if __name__ == "__main__":
    main(*sys.argv[1:])
