"""From an ONNX file to a TensorRT engine and its sidecar."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

from rcil.core.files import check_other_file, replacing, sha256_of
from rcil_export.engine.errors import EngineError
from rcil_export.engine.flavour import Flavour, find_flavour
from rcil_export.engine.gpu import find_gpus
from rcil_export.engine.layout import is_image, sizes_text
from rcil_export.engine.log import collected_errors, logger_of
from rcil_export.engine.options import EngineOptions
from rcil_export.engine.precision import check_precision, conv_precisions
from rcil_export.engine.profile import add_profile
from rcil_export.engine.progress import BuildWatch, Listener, interrupt_stops, monitor_of
from rcil_export.engine.sidecar import EngineSidecar, TensorInfo, sidecar_path
from rcil_export.engine.targets import choose_gpus
from rcil_export.engine.timing_cache import timing_cache_path, timings_kept
from rcil_export.graph.interface import INPUT_NAME
from rcil_export.graph.onnx_file import load_document, texts_of

_NUMPY_NAMES = {"FLOAT": "float32", "HALF": "float16", "BF16": "bfloat16"}


def build_engine(onnx: Path, engine: Path, options: EngineOptions, listen: Listener | None = None) -> EngineSidecar:
    """Build `engine` and its sidecar; after any error, or Ctrl-C, neither is written and what was there stays.

    The same ONNX file, options and TensorRT-RTX give the same bytes where sizes are fixed. Where they are open,
    TensorRT-RTX 1.7 numbers inner names and orders its tables by chance, so equal builds have different hashes.

    Ctrl-C and errors of `listen` stop the build at its next step; the longest step takes most of a build.

    Args:
        onnx: The graph; its precision is that of the engine.
        engine: The file to write; the sidecar is written beside it.
        options: What to build.
        listen: Called with the name of a phase, the steps done and the steps in all.
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
        network, parser = _parse(flavour, builder, onnx, errors)
        counts = conv_precisions(flavour.trt, network)
        check_precision(str(onnx), counts, options.precision)
        config = _configure(flavour, builder, gpus)
        profile = add_profile(builder, config, network, onnx, options.profile)
        with timings_kept(config, _timings(flavour, options)):
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
            inputs=tuple(_describe(network.get_input(i)) for i in range(network.num_inputs)),
            outputs=tuple(_describe(network.get_output(i)) for i in range(network.num_outputs)),
            profile=profile,
            metadata=metadata,
        )
        engine_part.write_bytes(plan)
        sidecar_part.write_text(sidecar.model_dump_json(indent=2) + "\n", encoding="utf-8")
    return sidecar


def _parse(flavour: Flavour, builder: Any, onnx: Path, errors: list[str]) -> tuple[Any, Any]:
    """The graph as a strongly typed network (every tensor keeps its type), and the parser, which holds its weights."""
    trt = flavour.trt
    network = builder.create_network(1 << int(trt.NetworkDefinitionCreationFlag.STRONGLY_TYPED))
    parser = trt.OnnxParser(network, logger_of(trt))
    if not parser.parse_from_file(str(onnx)) or parser.num_errors or errors:
        found = [parser.get_error(index) for index in range(parser.num_errors)]
        raise EngineError(
            f"{flavour.title} cannot take {onnx}: " + ("; ".join(map(_parser_message, found)) or "; ".join(errors)),
            "Use the ONNX file with ONNX Runtime, or export the model with another opset.",
        )
    inputs = [_describe(network.get_input(index)) for index in range(network.num_inputs)]
    if [tensor.name for tensor in inputs] != [INPUT_NAME] or not is_image(inputs[0].shape):
        has = "; ".join(f"{tensor.name} {sizes_text(tensor.shape)}" for tensor in inputs) or "none"
        raise EngineError(
            f"{onnx} does not take one '{INPUT_NAME}' of [N, H, W, 3] or [N, 3, H, W]; its inputs: {has}",
            "Give a file that rcil-export wrote.",
        )
    return network, parser


def _parser_message(error: Any) -> str:
    node = error.node_name() or "without a name"
    why = f", {error.desc()}" if error.desc() not in ("", "false") else ""
    return f"node {error.node()} ({node}, {error.node_operator()}): {error.code().name}{why}"


def _configure(flavour: Flavour, builder: Any, gpus: tuple[str, ...]) -> Any:
    """Targets, and fp32 that is fp32: TensorRT would round the inputs of fp32 convs to 10 bits (TF32) otherwise."""
    config = builder.create_builder_config()
    config.clear_flag(flavour.trt.BuilderFlag.TF32)
    if flavour.name == "rtx":
        config.num_compute_capabilities = len(gpus)
        for index, name in enumerate(gpus):
            config.set_compute_capability(flavour.trt.ComputeCapability.__members__[name.upper()], index)
    return config


def _timings(flavour: Flavour, options: EngineOptions) -> Path | None:
    """Where measurements are kept; TensorRT-RTX measures nothing while it builds."""
    if flavour.name == "rtx" or not options.timing_cache:
        return None
    return timing_cache_path(flavour, find_gpus()[0])


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


def _describe(tensor: Any) -> TensorInfo:
    name = tensor.dtype.name
    return TensorInfo(name=tensor.name, dtype=_NUMPY_NAMES.get(name, name.lower()), shape=tuple(tensor.shape))
