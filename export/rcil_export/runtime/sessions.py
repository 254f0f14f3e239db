"""Sessions of ONNX Runtime that run on the requested provider, or raise an error that says why not. No torch here."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import onnxruntime as ort

from rcil.core.errors import ConfigError, RcilError, did_you_mean, first_line
from rcil_export.runtime.providers import CPU, is_listed, start_problem

if TYPE_CHECKING:
    import onnx

__all__ = ["CPU", "SessionError", "check_providers", "default_threads", "open_session"]

SPIN_MICROSECONDS = "50"
"""How long idle threads spin during a run before they sleep; earlier versions of ONNX Runtime ignore it.

On a busy machine, the default takes the core from the thread that has the work (`tools/bench/spinning.py`).
"""


class SessionError(RcilError):
    """ONNX Runtime cannot load a graph."""

    exit_code = 5


def check_providers(providers: Sequence[str]) -> None:
    """Raise if this ONNX Runtime lacks one of the execution providers, or if the first of them does not start."""
    for name in providers or ("",):
        if not is_listed(name):
            available = [known for known in ort.get_available_providers() if start_problem(known) is None]
            raise ConfigError(
                f"ONNX Runtime has no execution provider '{name}' here",
                f"{did_you_mean(name, available)} Available: {', '.join(available)}.",
            )
    problem = start_problem(providers[0])
    if problem is not None:
        raise ConfigError(f"{providers[0]} does not start: {problem.reason}", problem.remedy)


def default_threads() -> int:
    """Number of threads by default: `OMP_NUM_THREADS`, which torch obeys too, or one for each core."""
    asked = os.environ.get("OMP_NUM_THREADS", "")
    return int(asked) if asked.isdigit() and int(asked) else len(os.sched_getaffinity(0))


def open_session(
    model: onnx.ModelProto | bytes | Path,
    threads: int | None = None,
    providers: Sequence[str] = (CPU,),
    *,
    exact: bool = False,
    wide_sums: bool = False,
    outputs: Sequence[str] = (),
    only: bool = False,
    constants: Iterable[onnx.TensorProto] = (),
    early: bool = False,
    gpu: int = 0,
    name: str = "the graph",
) -> ort.InferenceSession:
    """A session that runs on the first of `providers`, or an error: ONNX Runtime itself would fall back silently.

    Its threads stop spinning when a run ends, so that they do not slow down what runs next.

    Args:
        model: The graph.
        threads: For the work inside a node; None: `default_threads`.
        providers: Execution providers, in the order of preference.
        exact: Run it node by node as it is written; otherwise ONNX Runtime may fuse and reorder nodes.
        wide_sums: For int8 graphs with 8-bit weights. CPUs without VNNI add pairs of their products in 16 bits, which
            overflow; ONNX Runtime then uses slower instructions that do not.
        outputs: Further values of a graph in memory to return besides its own outputs.
        only: Return `outputs` alone; nodes that lead to none of them are left out.
        constants: Further constants of a graph in memory, so that a variant of a graph needs no copy of its weights.
        early: Run every node as soon as its inputs exist, which frees the values that side branches read.
        gpu: The number of the GPU, for providers that run on one.
        name: Name of the graph, for messages.
    """
    check_providers(providers)
    options = _options(threads, exact=exact, wide_sums=wide_sums, early=early)
    if isinstance(model, Path | bytes):
        assert not outputs and not only, "outputs are added to graphs in memory"
        source = str(model) if isinstance(model, Path) else model
    else:
        from rcil_export.runtime.shared_weights import split  # here, because serving opens files and needs no onnx

        source, shared = split(model, outputs, only=only, constants=constants)
        options.add_external_initializers(list(shared), list(shared.values()))
    chosen = [(provider, {"device_id": str(gpu)}) if gpu and provider != CPU else provider for provider in providers]
    try:
        session = ort.InferenceSession(source, options, providers=chosen, enable_fallback=0)
    except Exception as error:  # its exceptions have no common root
        raise SessionError(
            f"ONNX Runtime cannot load {name}: {first_line(error)}",
            "Choose another precision or execution provider, or export it again.",
        ) from error
    if session.get_providers()[0] != providers[0]:
        raise ConfigError(
            f"{providers[0]} did not start for {name}; ONNX Runtime would have used {session.get_providers()[0]}",
            "Free memory on the GPU, or choose another provider.",
        )
    return session


def _options(threads: int | None, *, exact: bool, wide_sums: bool, early: bool) -> ort.SessionOptions:
    options = ort.SessionOptions()
    options.intra_op_num_threads = threads if threads is not None else default_threads()
    options.inter_op_num_threads = 1
    options.log_severity_level = 3
    options.add_session_config_entry("session.force_spinning_stop", "1")
    options.add_session_config_entry("session.intra_op.spin_duration_us", SPIN_MICROSECONDS)
    if wide_sums:
        options.add_session_config_entry("session.x64quantprecision", "1")
    if early:
        options.execution_order = ort.ExecutionOrder.PRIORITY_BASED
    if exact:
        options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    return options
