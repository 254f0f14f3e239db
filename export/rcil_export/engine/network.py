"""The network that TensorRT parses from an ONNX file: its inputs, the precision of its convs, its range of sizes."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

from rcil.core.errors import ConfigError
from rcil_export.engine.callbacks import logger_of
from rcil_export.engine.errors import EngineError
from rcil_export.engine.flavour import Flavour
from rcil_export.engine.sidecar import TensorInfo, axis_ranges, fits_profile, is_image, sizes_text
from rcil_export.graph.interface import INPUT_NAME, PRECISIONS, Precision
from rcil_export.graph.shapes import InputShape

NUMPY_NAMES = {"FLOAT": "float32", "HALF": "float16", "BF16": "bfloat16"}
PRECISION_NAMES = {"FLOAT": "fp32", "HALF": "fp16", "BF16": "bf16"}
MIN_SHARE = 0.5
"""A reduced precision must reach this share of the convs; sensitive ones may stay more exact."""


def parse_network(flavour: Flavour, builder: Any, onnx: Path, errors: list[str]) -> tuple[Any, Any]:
    """The graph as a strongly typed network (every tensor keeps its type), and the parser, which holds its weights."""
    trt = flavour.trt
    network = builder.create_network(1 << int(trt.NetworkDefinitionCreationFlag.STRONGLY_TYPED))
    parser = trt.OnnxParser(network, logger_of(trt))
    if not parser.parse_from_file(str(onnx)) or parser.num_errors or errors:
        found = [parser.get_error(index) for index in range(parser.num_errors)]
        raise EngineError(
            f"{flavour.title} cannot parse {onnx}: " + ("; ".join(map(_parser_message, found)) or "; ".join(errors)),
            "Use the ONNX file with ONNX Runtime, or export the model with another opset.",
        )
    inputs = [describe_tensor(network.get_input(index)) for index in range(network.num_inputs)]
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


def describe_tensor(tensor: Any) -> TensorInfo:
    """Name, type and shape of an input or output of a network."""
    name = tensor.dtype.name
    return TensorInfo(name=tensor.name, dtype=NUMPY_NAMES.get(name, name.lower()), shape=tuple(tensor.shape))


def conv_precisions(trt: Any, network: Any) -> dict[str, int]:
    """How many convs compute in each precision, the most exact first.

    A conv is `int8` if both its input and its weights come out of a dequantisation of int8 values. The network is
    strongly typed, so the builder can neither lower nor raise any of this.
    """
    layers = [network.get_layer(index) for index in range(network.num_layers)]
    made_by = {layer.get_output(i).name: layer for layer in layers for i in range(layer.num_outputs)}

    def is_int8(tensor: Any) -> bool:
        layer = made_by.get(tensor.name)
        return layer is not None and layer.type == trt.LayerType.DEQUANTIZE and layer.get_input(0).dtype == trt.int8

    counts: Counter[str] = Counter()
    for conv in layers:
        if conv.type not in (trt.LayerType.CONVOLUTION, trt.LayerType.DECONVOLUTION):
            continue
        inputs = [conv.get_input(index) for index in range(conv.num_inputs)]
        tensors = [tensor for tensor in inputs if tensor is not None]
        name = tensors[0].dtype.name
        in_int8 = len(tensors) > 1 and all(is_int8(tensor) for tensor in tensors[:2])
        counts["int8" if in_int8 else PRECISION_NAMES.get(name, name.lower())] += 1
    order = [*PRECISIONS, *sorted(set(counts) - set(PRECISIONS))]
    return {name: counts[name] for name in order if counts[name]}


def check_precision(source: str, counts: dict[str, int], asked: Precision) -> None:
    """Raise if the convs of `source` are not in the requested precision.

    For fp32 every conv must be. For the others at least half must be, and the rest must be more exact.
    """
    total = sum(counts.values())
    if not total:
        raise ConfigError(f"{source} has no conv, so there is nothing to build in {asked}", "Give an exported model.")
    more_exact = {"fp32", *(("fp16", "bf16") if asked == "int8" else ())}
    others = {name for name in counts if name != asked and (asked == "fp32" or name not in more_exact)}
    if others or counts.get(asked, 0) < MIN_SHARE * total:
        found = ", ".join(f"{count} of {total} in {name}" for name, count in counts.items())
        raise ConfigError(
            f"an engine in {asked} was asked for, but the convs of {source} are {found}",
            "Precision is a property of the ONNX file: export it in the precision you want, or ask for the one it has.",
        )


def add_profile(builder: Any, config: Any, network: Any, onnx: Path, asked: InputShape | None) -> InputShape | None:
    """Give TensorRT the range of sizes of `image`, where the graph leaves sizes open.

    `asked` must agree with the sizes that the graph fixes.

    Returns:
        The profile of the engine; None where nothing is open.
    """
    image = network.get_input(0)
    shape = tuple(image.shape)
    is_open = -1 in shape
    if asked is None:
        if is_open:
            raise ConfigError(
                f"{onnx} leaves sizes of '{image.name}' open: {sizes_text(shape)}",
                "Give a profile of the smallest, usual and largest sizes.",
            )
        return None
    if not fits_profile(shape, asked):
        raise ConfigError(
            f"{onnx} takes '{image.name}' as {sizes_text(shape)}, which the profile {asked} does not fit",
            "Change the profile where the graph's sizes are fixed, or export the model with them open.",
        )
    if not is_open:
        return None
    ranges = axis_ranges(shape, asked)
    profile = builder.create_optimization_profile()
    profile.set_shape(image.name, *([getattr(extent, end) for extent in ranges] for end in ("low", "usual", "high")))
    config.add_optimization_profile(profile)
    return asked
