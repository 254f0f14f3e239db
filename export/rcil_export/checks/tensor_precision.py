"""The precision of a graph, read from its tensors and not from its label; torch is not imported."""

from __future__ import annotations

import json
from collections.abc import Collection
from dataclasses import dataclass

import onnx
from onnx import TensorProto

from rcil_export.checks.result import Item
from rcil_export.graph.interface import PRECISIONS, Precision
from rcil_export.graph.nodes import constants_of
from rcil_export.precision.record import CONVERSION_KEY

MIN_SHARE = 0.25
"""Smallest share of all convs that must be in a precision, however many the file declares as kept in fp32."""
BY_TYPE: dict[int, Precision] = {TensorProto.FLOAT16: "fp16", TensorProto.BFLOAT16: "bf16"}
STEPS = (TensorProto.INT8, TensorProto.UINT8)


@dataclass(frozen=True)
class TensorPrecision:
    """Number of convs by the precision they compute in."""

    convs: dict[Precision, int]
    """Convs that the file does not declare as kept in fp32."""
    precision: Precision
    """The precision of most convs; of two equally frequent ones, the more exact one."""

    def __str__(self) -> str:
        counts = [f"{self.convs[kind]} in {kind}" for kind in PRECISIONS if self.convs.get(kind)]
        return f"convs: {', '.join(counts)}" if counts else "no convs"


def precision_of(document: onnx.ModelProto, kept: Collection[str] = ()) -> TensorPrecision:
    """The precision that the convs of a graph compute in.

    A conv is in int8 if both its kernel and its values come from a `DequantizeLinear`; if only the kernel is stored in
    8 bits, the conv computes in fp32. Otherwise the type of the kernel counts, because ONNX requires the values to have
    the same type. Convs that the file's conversion record declares as kept in fp32 do not count, unless nearly all
    convs are declared.

    Args:
        document: Any graph.
        kept: Further convs that were kept in fp32 on purpose.
    """
    constants = constants_of(document)
    writer = {name: node for node in document.graph.node for name in node.output}
    declared = {*kept, *declared_fp32(document)}
    kinds = [(node.name, _of_conv(node, constants, writer)) for node in document.graph.node if node.op_type == "Conv"]
    counted = [kind for name, kind in kinds if kind != "fp32" or name not in declared]
    most = _most(counted)
    if counted.count(most) < MIN_SHARE * len(kinds):
        counted = [kind for _, kind in kinds]
        most = _most(counted)
    return TensorPrecision({kind: counted.count(kind) for kind in PRECISIONS if kind in counted}, most)


def _most(kinds: list[Precision]) -> Precision:
    """The most frequent precision; of two equally frequent ones, the more exact one."""
    return max(PRECISIONS, key=lambda kind: (kinds.count(kind), -PRECISIONS.index(kind)))


def declared_fp32(document: onnx.ModelProto) -> tuple[str, ...]:
    """Nodes that the file's conversion record names as kept in fp32."""
    for entry in document.metadata_props:
        if entry.key == CONVERSION_KEY:
            try:
                record = json.loads(entry.value)
            except (ValueError, RecursionError):
                return ()
            kept = record.get("kept_fp32") if isinstance(record, dict) else None
            return tuple(str(name) for name in kept) if isinstance(kept, dict | list) else ()
    return ()


def precision_item(label: Precision, found: TensorPrecision) -> Item:
    """Whether the label of a file is the precision of its tensors."""
    measured = f"labelled {label}, and the tensors are {found.precision} ({found})"
    detail = {"label": label, "tensors": found.precision, "convs": dict(found.convs)}
    return Item(
        "precision", "Precision of the tensors", label == found.precision, measured, f"{label}, as labelled", detail
    )


def _of_conv(
    node: onnx.NodeProto, constants: dict[str, onnx.TensorProto], writer: dict[str, onnx.NodeProto]
) -> Precision:
    image, weight, *_ = (*node.input, "", "")
    if weight in constants:
        return BY_TYPE.get(constants[weight].data_type, "fp32")
    made_by = writer.get(weight)
    if made_by is None or made_by.op_type != "DequantizeLinear":
        return "fp32"
    scale = constants.get(made_by.input[1])
    reader = writer.get(image)
    quantised = reader is not None and reader.op_type == "DequantizeLinear" and _is_steps(made_by, constants, writer)
    if quantised:
        return "int8"
    return "fp32" if scale is None else BY_TYPE.get(scale.data_type, "fp32")


def _is_steps(node: onnx.NodeProto, constants: dict[str, onnx.TensorProto], writer: dict[str, onnx.NodeProto]) -> bool:
    """Whether a kernel is stored in 8 bits, or rounded to them by a `QuantizeLinear`."""
    stored = constants.get(node.input[0])
    made_by = writer.get(node.input[0])
    if stored is not None:
        return stored.data_type in STEPS
    return made_by is not None and made_by.op_type == "QuantizeLinear"
