"""The tensors of a model in the Open Inference Protocol."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rcil_export.graph.interface import INPUT_NAME
from rcil_export.graph.shapes import Extent
from rcil_serve.http.protocol.answers import RefusalError
from rcil_serve.runtime.backends import Backend, Outputs

Array = NDArray[Any]
TYPES: dict[str, np.dtype[Any]] = {"UINT8": np.dtype("u1"), "INT32": np.dtype("<i4"), "FP32": np.dtype("<f4")}
UINT8_CLASSES = 256
"""Maximum number of classes of a UINT8 mask; with more it is INT32."""


@dataclass(frozen=True)
class Tensor:
    """An input or output tensor."""

    name: str
    datatype: str
    axes: tuple[Extent, ...]

    def __str__(self) -> str:
        lengths = (str(axis.low) if axis.fixed else f"{axis.low} to {axis.high}" for axis in self.axes)
        return f"{self.name} {self.datatype} [{', '.join(lengths)}]"

    def describe(self) -> dict[str, object]:
        """Description for the model's metadata; -1 for a dynamic axis."""
        shape = [axis.low if axis.fixed else -1 for axis in self.axes]
        return {"name": self.name, "datatype": self.datatype, "shape": shape}

    def check_shape(self, shape: list[int]) -> None:
        """Refuse with 400 if the model does not accept a shape."""
        fits = len(shape) == len(self.axes) and all(
            axis.low <= length <= axis.high for axis, length in zip(self.axes, shape, strict=True)
        )
        if not fits:
            raise RefusalError(
                400,
                f"{self.name} has the shape {shape}; the model expects {self}",
                "/segment accepts any size.",
            )

    def from_bytes(self, data: memoryview, shape: list[int]) -> Array:
        """Interpret little-endian values in row-major order, without copying them."""
        dtype = TYPES[self.datatype]
        if len(data) != math.prod(shape) * dtype.itemsize:
            raise RefusalError(400, f"{self.name} of shape {shape} does not have {len(data)} bytes")
        return np.frombuffer(data, dtype).reshape(shape)

    def from_numbers(self, data: object, shape: list[int]) -> Array:
        """Convert a nested or flat list of numbers."""
        if not isinstance(data, list):
            raise RefusalError(400, f"{self.name} has no data", "Send `data`, or binary_data_size and the bytes.")
        try:
            numbers = np.array(data)
            if numbers.dtype.kind not in "iuf" or numbers.size != math.prod(shape):
                raise ValueError(f"{numbers.size} values of type {numbers.dtype} for the shape {shape}")
            with np.errstate(all="ignore"):
                values = numbers.astype(TYPES[self.datatype])
        except (ValueError, TypeError, OverflowError) as error:
            raise RefusalError(400, f"invalid data for {self.name}: {error}") from error
        if values.dtype.kind == "u" and not np.array_equal(values, numbers):
            raise RefusalError(400, f"the data of {self.name} has values that are not whole numbers from 0 to 255")
        return values.reshape(shape)


def input_tensor(backend: Backend) -> Tensor:
    """`image`: uint8 [N, H, W, 3], or float [N, 3, H, W]."""
    shape, colours = backend.interface.shape, Extent.of(3)
    if backend.interface.input == "uint8":
        return Tensor(INPUT_NAME, "UINT8", (shape.batch, shape.height, shape.width, colours))
    return Tensor(INPUT_NAME, "FP32", (shape.batch, colours, shape.height, shape.width))


def output_tensors(backend: Backend) -> list[Tensor]:
    """`mask` [N, H, W], and `confidence` [N, H, W] where the model was exported with it."""
    shape = backend.interface.shape
    axes = (shape.batch, shape.height, shape.width)
    mask = Tensor("mask", "UINT8" if len(backend.metadata.classes) <= UINT8_CLASSES else "INT32", axes)
    return [mask, Tensor("confidence", "FP32", axes)] if "confidence" in backend.interface.outputs else [mask]


def named(outputs: Outputs) -> dict[str, Array]:
    """Outputs of a backend by name."""
    found: dict[str, Array] = {"mask": outputs.mask}
    return found if outputs.confidence is None else found | {"confidence": outputs.confidence}


def type_name(values: Array) -> str:
    """Name of an array's type in the protocol."""
    return next(name for name, dtype in TYPES.items() if dtype == values.dtype)
