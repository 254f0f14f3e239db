"""A graph for ONNX Runtime whose large constants are passed in memory instead of being serialised. No torch here.

Serialising a graph copies its weights into bytes, and ONNX Runtime copies them twice more while it parses those. Here
they are copied once, into arrays that the session uses as they are.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import onnx
import onnxruntime as ort
from numpy.typing import NDArray
from onnx import TensorProto, helper

from rcil_export.graph.nodes import without_constants

MIN_BYTES = 4096
"""Smaller constants stay in the graph: sizes and axes, which ONNX Runtime reads while it loads."""
KINDS: dict[int, type[np.generic]] = {
    TensorProto.FLOAT: np.float32,
    TensorProto.FLOAT16: np.float16,
    TensorProto.INT8: np.int8,
    TensorProto.UINT8: np.uint8,
    TensorProto.INT32: np.int32,
}


def split(
    document: onnx.ModelProto,
    outputs: Sequence[str] = (),
    *,
    only: bool = False,
    constants: Iterable[onnx.TensorProto] = (),
) -> tuple[bytes, dict[str, ort.OrtValue]]:
    """The serialised graph without its large constants, and these constants by name.

    Args:
        document: Any graph; it is not changed.
        outputs: Further values that the session returns.
        only: Return these alone; the session then leaves out the nodes that lead to none of them.
        constants: Further constants of the graph.
    """
    light = without_constants(document)
    tensors = [*document.graph.initializer, *constants]
    names = Counter(tensor.name for tensor in tensors)
    names.update(value.name for value in document.graph.input)  # such a constant is a default, which may be replaced
    shared = {}
    for tensor in tensors:
        values = _values(tensor) if names[tensor.name] == 1 else None
        if values is None:
            light.graph.initializer.append(tensor)
            continue
        shared[tensor.name] = ort.OrtValue.ortvalue_from_numpy(values)
        entry = light.graph.initializer.add(name=tensor.name, data_type=tensor.data_type, dims=tensor.dims)
        entry.data_location = TensorProto.EXTERNAL
        entry.external_data.add(key="location", value="memory")
    if only:
        del light.graph.output[:]
    light.graph.output.extend(helper.make_empty_tensor_value_info(name) for name in outputs)
    return light.SerializeToString(), shared


def _values(tensor: onnx.TensorProto) -> NDArray[Any] | None:
    """The numbers of a large constant that stores them as plain bytes; None for others."""
    kind = KINDS.get(tensor.data_type)
    if kind is None or tensor.data_location == TensorProto.EXTERNAL or tensor.HasField("segment"):
        return None
    raw = tensor.raw_data
    if len(raw) < MIN_BYTES or len(raw) != np.dtype(kind).itemsize * int(np.prod(tensor.dims, dtype=np.int64)):
        return None
    return np.frombuffer(raw, kind).reshape(tuple(tensor.dims))
