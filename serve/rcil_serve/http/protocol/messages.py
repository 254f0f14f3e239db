"""Inference requests and answers of the Open Inference Protocol: JSON, with tensors in it or behind it."""

from __future__ import annotations

import json
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from rcil_export.graph.description import first_problem
from rcil_serve.http.protocol.answers import RefusalError
from rcil_serve.http.protocol.body import MAX_DIGITS, Body
from rcil_serve.http.protocol.tensors import Array, Tensor, type_name

HEADER_LENGTH = "Inference-Header-Content-Length"
"""Where the JSON ends and binary tensors begin, in requests and answers."""


class _Part(BaseModel):
    model_config = ConfigDict(strict=True)

    parameters: dict[str, Any] = {}


class SentTensor(_Part):
    """An input as the JSON describes it."""

    name: str
    datatype: str
    shape: list[int] = Field(max_length=8)
    data: Any = None
    """Numbers, nested or flat; absent where they follow the JSON."""


class WantedTensor(_Part):
    """An output that is asked for."""

    name: str


class InferRequest(_Part):
    """The JSON of a request."""

    id: str = ""
    inputs: list[SentTensor]
    outputs: list[WantedTensor] = []

    def binary(self, output: str) -> bool:
        """Whether an output is to follow the JSON instead of being in it."""
        wanted = next((one.parameters for one in self.outputs if one.name == output), {})
        return bool(wanted.get("binary_data", self.parameters.get("binary_data_output", False)))


def parse_request(body: Body, header_length: str | None) -> tuple[InferRequest, memoryview]:
    """The JSON of a request and the bytes behind it.

    Args:
        body: All of it.
        header_length: Length of the JSON as the header states it; None: all is JSON.
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
        raise RefusalError(400, f"the request is not as the protocol wants it: {first_problem(error)}") from error


def input_of(request: InferRequest, binary: memoryview, tensor: Tensor) -> Array:
    """The one input of our models, checked against what the model takes."""
    if [sent.name for sent in request.inputs] != [tensor.name]:
        names = ", ".join(sent.name for sent in request.inputs) or "none"
        raise RefusalError(400, f"the inputs are {names}; the model takes {tensor}")
    sent = request.inputs[0]
    if sent.datatype != tensor.datatype:
        raise RefusalError(400, f"{sent.name} is {sent.datatype}; the model takes {tensor}")
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
    """Raise for an output that the model does not have or that is asked for twice, or a form that is not offered.

    A small request could name one output a million times, and the answer would not fit into memory.
    """
    names = [wanted.name for wanted in request.outputs]
    if len(set(names)) < len(names):
        raise RefusalError(400, "an output is asked for more than once", f"Known: {', '.join(known)}.")
    for wanted in request.outputs:
        if wanted.name not in known:
            raise RefusalError(400, f"there is no output '{wanted.name}'", f"Known: {', '.join(known)}.")
        if "classification" in wanted.parameters:
            raise RefusalError(400, "outputs as classifications are not offered", "Leave `classification` out.")


def answer_to(request: InferRequest, model: str, version: str, found: dict[str, Array]) -> tuple[bytes, int | None]:
    """An answer's body, and the length of its JSON if binary tensors follow it.

    Args:
        request: What is answered.
        model: Name.
        version: That answered.
        found: Outputs by name; those that were not asked for are left out.
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
