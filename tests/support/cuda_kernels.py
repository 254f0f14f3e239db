"""Which nodes of a graph ONNX Runtime's CUDA provider has kernels for, by a table that was read off the provider."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import onnx
from onnx import TensorProto, defs

TABLE = Path(__file__).parents[1] / "export" / "onnx_graph" / "cuda_kernels.json"
KERNELS: dict[str, list[dict[str, Any]]] = json.loads(TABLE.read_text(encoding="utf-8"))["kernels"]


def nodes_without_kernel(document: onnx.ModelProto) -> list[str]:
    """Operator and name of every node that the CUDA provider leaves to the CPU, or that nothing runs."""
    opset = next(entry.version for entry in document.opset_import if entry.domain == "")
    types = types_of(document)
    return [f"{node.op_type} {node.name}" for node in document.graph.node if not has_kernel(node, opset, types)]


def has_kernel(node: onnx.NodeProto, opset: int, types: dict[str, str]) -> bool:
    """Whether a kernel of the table takes the node's version and types."""
    schema = defs.get_schema(node.op_type, opset, "")
    needed: dict[str, str] = {}
    for formals, names in ((schema.inputs, node.input), (schema.outputs, node.output)):
        for position, name in enumerate(names):
            formal = formals[min(position, len(formals) - 1)]  # the last may repeat
            if name:
                needed[formal.type_str] = types[name]
    return any(
        matches(kernel, schema.since_version)
        and all(needed[key] in allowed for key, allowed in kernel["types"].items() if key in needed)
        for kernel in KERNELS.get(node.op_type, [])
    )


def matches(kernel: dict[str, Any], since: int) -> bool:
    """ONNX Runtime's rule: an open range holds for its first version alone."""
    first, last = kernel["first"], kernel["last"]
    return since == first or (last is not None and first < since <= last)


def types_of(document: onnx.ModelProto) -> dict[str, str]:
    """Element type of every value, as the table writes it."""
    graph = onnx.shape_inference.infer_shapes(document, strict_mode=True).graph
    found = {value.name: value.type.tensor_type.elem_type for value in (*graph.value_info, *graph.input, *graph.output)}
    found |= {tensor.name: tensor.data_type for tensor in graph.initializer}
    return {name: TensorProto.DataType.Name(kind).lower() for name, kind in found.items()}


def channels_last_resizes(document: onnx.ModelProto) -> list[str]:
    """Names of Resize nodes that change axis 1, which is that of channels to the CUDA kernel and never scaled."""
    graph = onnx.shape_inference.infer_shapes(document, strict_mode=True, data_prop=True).graph
    shapes = {
        value.name: [dim.dim_value if dim.HasField("dim_value") else None for dim in value.type.tensor_type.shape.dim]
        for value in (*graph.value_info, *graph.input, *graph.output)
    }
    resizes = [node for node in graph.node if node.op_type == "Resize"]
    assert resizes, "a segmenter without an upsampling"
    kept = [(shapes[node.input[0]][1], shapes[node.output[0]][1]) for node in resizes]
    return [node.name for node, (before, after) in zip(resizes, kept, strict=True) if before is None or before != after]
