"""The precision that a parsed network really has, conv by conv."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any

from rcil.core.errors import ConfigError
from rcil_export.graph.interface import PRECISIONS, Precision

_NAMES = {"FLOAT": "fp32", "HALF": "fp16", "BF16": "bf16"}
LEAST_SHARE = 0.5
"""A reduced precision must reach this share of the convs; sensitive ones may stay more exact."""


def conv_precisions(trt: Any, network: Any) -> dict[str, int]:
    """How many convs compute in each precision, most exact first.

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
        tensors = list(_inputs(conv))
        if len(tensors) > 1 and all(is_int8(tensor) for tensor in tensors[:2]):
            counts["int8"] += 1
        else:
            name = tensors[0].dtype.name
            counts[_NAMES.get(name, name.lower())] += 1
    order = [*PRECISIONS, *sorted(set(counts) - set(PRECISIONS))]
    return {name: counts[name] for name in order if counts[name]}


def check_precision(source: str, counts: dict[str, int], asked: Precision) -> None:
    """Raise if the convs of `source` are not in the precision that was asked for.

    For fp32 every conv must be. For the others at least half must be, and the rest must be more exact.
    """
    total = sum(counts.values())
    if not total:
        raise ConfigError(f"{source} has no conv, so there is nothing to build in {asked}", "Give an exported model.")
    more_exact = {"fp32", *(("fp16", "bf16") if asked == "int8" else ())}
    others = {name for name in counts if name != asked and (asked == "fp32" or name not in more_exact)}
    if others or counts.get(asked, 0) < LEAST_SHARE * total:
        found = ", ".join(f"{count} of {total} in {name}" for name, count in counts.items())
        raise ConfigError(
            f"an engine in {asked} was asked for, but the convs of {source} are {found}",
            "Precision is a property of the ONNX file: export it in the precision you want, or ask for the one it has.",
        )


def _inputs(layer: Any) -> Iterator[Any]:
    for index in range(layer.num_inputs):
        tensor = layer.get_input(index)
        if tensor is not None:
            yield tensor
