"""Inference requests and responses of the Open Inference Protocol: JSON, optionally followed by binary tensors."""

from __future__ import annotations

import json
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from rcil_export.graph.description import first_problem
from rcil_serve.http.protocol.answers import RefusalError
from rcil_serve.http.protocol.body import MAX_DIGITS, Body
from rcil_serve.http.protocol.tensors import Array, Tensor, type_name

HEADER_LENGTH = "Inference-Header-Content-Length"
"""Header with the length of the JSON that precedes binary tensors, in requests and responses."""


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
    behind: list[bytes] = []
    for name in names:
        values = found[name]
        entry: dict[str, object] = {"name": name, "datatype": type_name(values), "shape": list(values.shape)}
        if request.binary(name):
            entry["parameters"] = {"binary_data_size": values.nbytes}
            behind.append(values.tobytes())
        else:
            entry["data"] = values.ravel().tolist()
        outputs.append(entry)
    document: dict[str, object] = {"model_name": model, "model_version": version, "outputs": outputs}
    if request.id:
        document["id"] = request.id
    header = json.dumps(document, separators=(",", ":")).encode()
    return b"".join((header, *behind)), len(header) if behind else None
