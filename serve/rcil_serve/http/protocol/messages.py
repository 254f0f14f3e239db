"""The Open Inference Protocol: tensors, and requests and responses of JSON that binary tensors may follow."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from rcil_export.graph.description import first_problem
from rcil_export.graph.interface import INPUT_NAME
from rcil_export.graph.shapes import Extent
from rcil_serve.http.protocol.answers import RefusalError
from rcil_serve.http.protocol.body import MAX_DIGITS, Body
from rcil_serve.runtime.backends import Backend, Outputs

HEADER_LENGTH = "Inference-Header-Content-Length"
"""Header with the length of the JSON that precedes binary tensors, in requests and responses."""
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
                400, f"{self.name} has the shape {shape}; the model expects {self}", "/segment accepts any size."
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


class _Part(BaseModel):
    model_config = ConfigDict(strict=True)

    parameters: dict[str, Any] = {}


class SentTensor(_Part):
    """An input tensor of a request."""

    name: str
    datatype: str
    shape: list[int] = Field(max_length=8)
    data: Any = None
    """Values, nested or flat; absent if they follow the JSON."""


class WantedTensor(_Part):
    """An output that the client requests."""

    name: str


class InferRequest(_Part):
    """JSON part of an inference request."""

    id: str = ""
    inputs: list[SentTensor]
    outputs: list[WantedTensor] = []

    def binary(self, output: str) -> bool:
        """Whether an output is sent as binary data after the JSON."""
        wanted = next((one.parameters for one in self.outputs if one.name == output), {})
        return bool(wanted.get("binary_data", self.parameters.get("binary_data_output", False)))


def parse_request(body: Body, header_length: str | None) -> tuple[InferRequest, memoryview]:
    """Split a request into its JSON and the bytes after it.

    Args:
        body: The whole body.
        header_length: Length of the JSON according to the header; None if the whole body is JSON.
    """
    split = len(body)
    if header_length is not None:
        split = int(header_length) if header_length.isdecimal() and len(header_length) <= MAX_DIGITS else -1
        if not 0 < split <= len(body):
            raise RefusalError(
                400, f"{HEADER_LENGTH} is '{header_length[:MAX_DIGITS]}', and the body has {len(body)} bytes"
            )
    view = memoryview(body)
    try:
        return InferRequest.model_validate_json(bytes(view[:split])), view[split:]
    except ValidationError as error:
        raise RefusalError(400, f"invalid request: {first_problem(error)}") from error


def input_of(request: InferRequest, binary: memoryview, tensor: Tensor) -> Array:
    """The input tensor of a request, checked against the model's input."""
    if [sent.name for sent in request.inputs] != [tensor.name]:
        names = ", ".join(sent.name for sent in request.inputs) or "none"
        raise RefusalError(400, f"the inputs are {names}; the model expects {tensor}")
    sent = request.inputs[0]
    if sent.datatype != tensor.datatype:
        raise RefusalError(400, f"{sent.name} is {sent.datatype}; the model expects {tensor}")
    tensor.check_shape(sent.shape)
    size = sent.parameters.get("binary_data_size")
    if size is None:
        if len(binary):
            raise RefusalError(400, f"{len(binary)} bytes follow the JSON, and no input has binary_data_size")
        return tensor.from_numbers(sent.data, sent.shape)
    if size != len(binary):
        raise RefusalError(400, f"binary_data_size is {size}, and {len(binary)} bytes follow the JSON")
    return tensor.from_bytes(binary, sent.shape)


def check_outputs(request: InferRequest, known: list[str]) -> None:
    """Raise if an output is unknown, requested twice, or requested as a classification.

    A small request could name one output a million times, and the response would not fit into memory.
    """
    names = [wanted.name for wanted in request.outputs]
    if len(set(names)) < len(names):
        raise RefusalError(400, "an output is requested more than once", f"Known: {', '.join(known)}.")
    for wanted in request.outputs:
        if wanted.name not in known:
            raise RefusalError(400, f"unknown output '{wanted.name}'", f"Known: {', '.join(known)}.")
        if "classification" in wanted.parameters:
            raise RefusalError(400, "classification outputs are not supported", "Remove `classification`.")


def answer_to(request: InferRequest, model: str, version: str, found: dict[str, Array]) -> tuple[bytes, int | None]:
    """Create the body of a response, and the length of its JSON if binary tensors follow.

    Args:
        request: The request.
        model: Name of the model.
        version: Version of the model.
        found: Outputs by name; only requested ones are sent.
    """
    names = [wanted.name for wanted in request.outputs] or list(found)
    outputs: list[dict[str, object]] = []
    behind: list[memoryview] = []
    for name in names:
        values = found[name]
        entry: dict[str, object] = {"name": name, "datatype": type_name(values), "shape": list(values.shape)}
        if request.binary(name):
            entry["parameters"] = {"binary_data_size": values.nbytes}
            behind.append(np.ascontiguousarray(values).data.cast("B"))
        else:
            entry["data"] = values.ravel().tolist()
        outputs.append(entry)
    document: dict[str, object] = {"model_name": model, "model_version": version, "outputs": outputs}
    if request.id:
        document["id"] = request.id
    header = json.dumps(document, separators=(",", ":")).encode()
    return b"".join((header, *behind)), len(header) if behind else None
