"""On which execution providers a graph may run, given what it was exported for. No torch here: serving uses it."""

from __future__ import annotations

from pathlib import Path

from rcil.core.errors import ConfigError
from rcil.core.log import log
from rcil_export.graph.interface import GraphInterface, Interface
from rcil_export.runtime.providers import CPU, CUDA, provider_of

WRITE_AGAIN = "Export it again with `--for any`"


def choose_provider(device: str, interface: Interface, source: Path | str) -> str:
    """The execution provider for a graph on a device.

    A named device is used or is an error. `auto` skips a GPU that the graph is not written for, with a warning.

    Args:
        device: One of `DEVICES`.
        interface: What the file says about itself.
        source: Name of the file, for messages.
    """
    provider = provider_of(device)
    problem = provider_problem(interface, provider)
    if problem is not None and device == "auto" and provider_problem(interface, CPU) is None:
        log.warning("%s %s, so the CPU is used. %s", source, *problem)
        return CPU
    check_provider_form(interface, provider, source)
    return provider


def check_provider_form(interface: Interface, provider: str, source: Path | str) -> None:
    """Raise for a graph that would give wrong masks on `provider`, or for which it lacks kernels.

    Args:
        interface: What the file says about itself.
        provider: ONNX Runtime's name of an execution provider.
        source: Name of the file, for the message.
    """
    problem = provider_problem(interface, provider)
    if problem is not None:
        raise ConfigError(f"{source} {problem[0]}", problem[1])


def provider_problem(interface: Interface, provider: str) -> tuple[str, str] | None:
    """Why a graph must not run on `provider`, and the remedy; None if it may.

    A channels-last Resize is correct on CPUs only: the CUDA kernel computes as if it had planes. For bf16, ONNX Runtime
    has no convolutions on CPUs, and no LeakyRelu, Clip and ArgMax on CUDA.
    """
    if interface.precision == "bf16" and provider in (CPU, CUDA):
        kernels = "Conv" if provider == CPU else "LeakyRelu, Clip and ArgMax"
        return (
            f"is in bf16, for which {provider} of ONNX Runtime has no {kernels} kernels",
            "Export it with `--precision fp16` or fp32, or run bf16 as a TensorRT engine (`--target onnx,engine`).",
        )
    if interface.runtime == "cpu" and provider != CPU:
        return (
            f"was exported with `--for cpu`, a form that gives wrong masks on {provider}",
            f"{WRITE_AGAIN}, or run it with `--device cpu`.",
        )
    return None


def needs_wide_sums(interface: Interface) -> bool:
    """Whether an int8 graph has weights of 8 bits, which the form for CPUs avoids; see `open_session`."""
    return interface.precision == "int8" and interface.runtime != "cpu"


def check_engine_form(interface: GraphInterface, source: Path | str) -> None:
    """Raise for a graph that TensorRT cannot build an engine from."""
    if interface.for_cpu:
        raise ConfigError(
            f"{source} is written for CPUs (`--for cpu`), and no engine is built from that form",
            f"{WRITE_AGAIN}, which engines and CPUs take, and build the engine from that.",
        )
