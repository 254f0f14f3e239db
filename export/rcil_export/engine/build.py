"""From an ONNX file to a TensorRT engine and its sidecar."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rcil.core.files import check_other_file, replacing, sha256_of
from rcil_export.engine.caches import timing_cache_path, timings_kept
from rcil_export.engine.callbacks import BuildWatch, Listener, collected_errors, interrupt_stops, logger_of, monitor_of
from rcil_export.engine.errors import EngineError
from rcil_export.engine.flavour import Flavour, FlavourChoice, choose_gpus, find_flavour
from rcil_export.engine.gpu import find_gpus
from rcil_export.engine.network import add_profile, check_precision, conv_precisions, describe_tensor, parse_network
from rcil_export.engine.sidecar import EngineSidecar, sidecar_path
from rcil_export.graph.interface import Precision
from rcil_export.graph.onnx_file import load_document, texts_of
from rcil_export.graph.shapes import InputShape


@dataclass(frozen=True)
class EngineOptions:
    """The choices of one build."""

    precision: Precision = "fp32"
    """Precision of the ONNX file. It is read back from the parsed network; a difference is an error."""
    flavour: FlavourChoice = "auto"
    gpus: tuple[str, ...] = ()
    """Compute capabilities such as `sm86`. None: all that TensorRT-RTX knows from Ampere (sm80) on, or the GPU that the
    classic TensorRT runs on."""
    profile: InputShape | None = None
    """The range of sizes, for an ONNX file that leaves them open."""
    timing_cache: bool = True
    """Keep what classic TensorRT measures in the user's cache folder, so that the next build takes less time. Without
    it a build depends on nothing but its inputs."""


def build_engine(onnx: Path, engine: Path, options: EngineOptions, listen: Listener | None = None) -> EngineSidecar:
    """Build `engine` and its sidecar; after any error, or Ctrl-C, neither is written and existing files stay.

    The same ONNX file, options and TensorRT-RTX give the same bytes where sizes are fixed. Where they are open,
    TensorRT-RTX 1.7 numbers inner names and orders its tables by chance, so equal builds have different hashes.

    Ctrl-C and errors of `listen` stop the build at its next step; the longest step takes most of a build.

    Args:
        onnx: The graph; its precision is that of the engine.
        engine: The file to write; the sidecar is written beside it.
        options: What to build.
        listen: Told about the progress.
    """
    check_other_file(engine, onnx, "the ONNX file it is built from")
    metadata = texts_of(load_document(onnx))
    flavour = find_flavour(options.flavour)
    gpus = choose_gpus(flavour, options.gpus, options.precision)
    with (
        replacing(engine) as engine_part,
        replacing(sidecar_path(engine)) as sidecar_part,
        collected_errors() as errors,
    ):
        builder = flavour.trt.Builder(logger_of(flavour.trt))
        network, parser = parse_network(flavour, builder, onnx, errors)
        counts = conv_precisions(flavour.trt, network)
        check_precision(str(onnx), counts, options.precision)
        config = _configure(flavour, builder, gpus)
        profile = add_profile(builder, config, network, onnx, options.profile)
        keeps_timings = flavour.name == "classic" and options.timing_cache  # TensorRT-RTX measures nothing
        with timings_kept(config, timing_cache_path(flavour, find_gpus()[0]) if keeps_timings else None):
            plan = _compile(flavour, builder, network, config, errors, listen)
        del parser  # it owns the memory of the network's weights until here
        sidecar = EngineSidecar(
            engine_sha256=hashlib.sha256(plan).hexdigest(),
            onnx_sha256=sha256_of(onnx),
            onnx_file=onnx.name,
            flavour=flavour.name,
            version=flavour.version,
            gpus=gpus,
            precision=options.precision,
            conv_layers=counts,
            inputs=tuple(describe_tensor(network.get_input(i)) for i in range(network.num_inputs)),
            outputs=tuple(describe_tensor(network.get_output(i)) for i in range(network.num_outputs)),
            profile=profile,
            metadata=metadata,
        )
        engine_part.write_bytes(plan)
        sidecar_part.write_text(sidecar.model_dump_json(indent=2) + "\n", encoding="utf-8")
    return sidecar


def _configure(flavour: Flavour, builder: Any, gpus: tuple[str, ...]) -> Any:
    """Set the target GPUs, and turn off TF32, which would round the inputs of fp32 convs to 10 bits."""
    config = builder.create_builder_config()
    config.clear_flag(flavour.trt.BuilderFlag.TF32)
    if flavour.name == "rtx":
        config.num_compute_capabilities = len(gpus)
        for index, name in enumerate(gpus):
            config.set_compute_capability(flavour.trt.ComputeCapability.__members__[name.upper()], index)
    return config


def _compile(
    flavour: Flavour, builder: Any, network: Any, config: Any, errors: list[str], listen: Listener | None
) -> memoryview:
    watch = BuildWatch(listen)
    monitor = monitor_of(flavour.trt, watch)
    config.progress_monitor = monitor
    with interrupt_stops(watch):
        plan = builder.build_serialized_network(network, config)
    if watch.stopped_by is not None:
        raise watch.stopped_by
    if plan is None or errors:
        raise EngineError(
            f"{flavour.title} could not build the engine: {'; '.join(errors) or 'it gave no reason'}",
            "Nothing was written. Use the ONNX file with ONNX Runtime, or try another precision or GPU.",
        )
    return memoryview(plan)
