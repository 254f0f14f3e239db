"""Runtimes are started in processes of their own, and what they really used counts, not what they list."""

import subprocess
import sys
from types import SimpleNamespace

import numpy as np
import pytest

from rcil import doctor_runtimes
from rcil.doctor_runtimes import NEGATION, Outcome, attempt, outcome_of, start_builder, start_provider, start_runtime

CUDA = "CUDAExecutionProvider"


def runtime_of(used, answer=-1.0):
    """An ONNX Runtime whose sessions run on `used`, whatever they are asked for."""
    calls = []

    class Session:
        def __init__(self, model, providers):
            calls.append(("session", model, providers))

        def run(self, outputs, inputs):
            return [np.full(1, answer, np.float32)]

        def get_providers(self):
            return [used, "CPUExecutionProvider"]

    preload = lambda: calls.append(("preload",))  # noqa: E731
    return SimpleNamespace(InferenceSession=Session, preload_dlls=preload, __version__="1.2"), calls


def test_the_probe_is_one_node_that_onnx_accepts():
    onnx = pytest.importorskip("onnx")
    model = onnx.load_from_string(NEGATION)
    onnx.checker.check_model(model, full_check=True)
    assert [node.op_type for node in model.graph.node] == ["Neg"]


def test_a_provider_that_starts():
    runtime, calls = runtime_of(CUDA)
    assert start_provider(runtime, CUDA) == "1.2"
    assert calls == [("preload",), ("session", NEGATION, [CUDA])], "libraries from pip are loaded first"


def test_a_provider_that_is_listed_but_does_not_start():
    runtime, _ = runtime_of("CPUExecutionProvider")
    with pytest.raises(RuntimeError, match="did not start; ONNX Runtime used CPUExecutionProvider"):
        start_provider(runtime, CUDA)


def test_a_provider_that_computes_nonsense():
    runtime, _ = runtime_of(CUDA, answer=0.5)
    with pytest.raises(RuntimeError, match=r"computes -1 x 1 = 0\.5"):
        start_provider(runtime, CUDA)


def test_the_cpu_is_started_in_a_process_of_its_own():
    assert attempt("provider", "CPUExecutionProvider").state == "works"
    missing = attempt("provider", "NoSuchExecutionProvider")
    assert missing.state == "broken" and "did not start" in missing.detail
    assert attempt("builder", "no_such_module") == Outcome("broken", "No module named 'no_such_module'")


class Trt:
    """A TensorRT; `missing` parts do not start."""

    __version__ = "10.1"

    def __init__(self, *missing):
        class Logger:
            ERROR = 1

            def __init__(self, level):
                pass

        self.Logger = Logger
        self.Builder = self.Runtime = lambda logger: object()
        for name in missing:
            setattr(self, name, lambda logger: None)


def test_tensorrt_starts_or_says_why_not(monkeypatch):
    assert start_builder(Trt()) == "10.1, builder started, builds on the GPU that runs it"
    with pytest.raises(RuntimeError, match="builder does not start"):
        start_builder(Trt("Builder"))
    monkeypatch.setattr(doctor_runtimes, "driver_gpus", lambda: (2, ""))
    assert start_runtime(Trt()) == "10.1, runtime started, 2 GPUs"
    with pytest.raises(RuntimeError, match="runtime does not start"):
        start_runtime(Trt("Runtime"))
    monkeypatch.setattr(doctor_runtimes, "driver_gpus", lambda: (0, "no driver"))
    with pytest.raises(doctor_runtimes.AbsentError, match="engines cannot run: no driver"):
        start_runtime(Trt())


LOG = (
    "\x1b[1;31m2026-01-01 10:00:00.1 [E:onnxruntime:Default, provider_bridge_ort.cc:2251 TryGetProviderInfo_CUDA] "
    "Failed to load library libonnxruntime_providers_cuda.so: libcublasLt.so.13: cannot open shared object file\x1b[m\n"
)


@pytest.mark.parametrize(
    ("code", "output", "errors", "state", "said"),
    [
        (0, '{"state": "works", "detail": "1.2"}\n', "some error on the way\n", "works", "1.2"),
        (
            0,
            'noise\n{"state": "broken", "detail": "did not start"}\n',
            LOG,
            "broken",
            "did not start: libcublasLt.so.13: cannot open",
        ),
        (0, '{"state": "broken", "detail": "bad"}', "x\n[E:a] FAIL : no kernel", "broken", "bad: FAIL : no kernel"),
        (-11, "", "", "broken", "ended its process (SIGSEGV)"),
        (-6, "", "terminate called: CUDA error\n", "broken", "(SIGABRT): terminate called: CUDA error"),
        (1, "", "", "broken", "ended its process (exit code 1)"),
        (0, "[]", "", "broken", "ended its process (exit code 0)"),
    ],
)
def test_what_a_process_that_tried_has_found(code, output, errors, state, said):
    found = outcome_of(code, output, errors)
    assert found.state == state and said in found.detail
    assert "\x1b" not in found.detail and "\n" not in found.detail


def test_a_start_that_never_ends(monkeypatch):
    def hang(*args, timeout, **options):
        raise subprocess.TimeoutExpired(args[0], timeout)

    monkeypatch.setattr(subprocess, "run", hang)
    assert attempt("provider", CUDA) == Outcome("broken", "did not start within 120 s")


def test_a_library_that_ends_the_process_ends_only_that_one(monkeypatch, tmp_path):
    (tmp_path / "tensorrt_bad.py").write_text("import os\nos.abort()\n")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    found = attempt("runtime", "tensorrt_bad")
    assert found.state == "broken" and "SIGABRT" in found.detail
    assert sys.modules.get("tensorrt_bad") is None
