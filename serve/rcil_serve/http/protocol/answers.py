"""Response models and errors of the routes, as stated in the OpenAPI document."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict

from rcil.core.errors import RcilError
from rcil.model.metadata import ClassInfo

BYTES: dict[str, Any] = {"schema": {"type": "string", "format": "binary"}}
MEANINGS = {
    400: "The request is invalid.",
    401: "The token is missing or wrong.",
    403: "The request comes from a page of another site.",
    404: "Unknown model or version.",
    408: "The body did not arrive in time.",
    409: "A reload is in progress.",
    413: "The body, the image or the batch is too large.",
    415: "The content encoding is not supported.",
    422: "The new model was refused; the old one keeps serving.",
    429: "Too many concurrent requests.",
    500: "Internal server error; see the server's log.",
    503: "No worker became free in time.",
    504: "The model did not answer in time.",
}


class _Answer(BaseModel):
    model_config = ConfigDict(extra="forbid", protected_namespaces=(), use_attribute_docstrings=True)


class Refused(_Answer):
    """Every response with a status of 400 or above."""

    error: str
    """Message with a hint."""


class ServerInfo(_Answer):
    """Name and version of the server."""

    name: str
    version: str
    extensions: list[str]


class TensorInfo(_Answer):
    """An input or output tensor."""

    name: str
    datatype: Literal["UINT8", "INT32", "FP32"]
    shape: list[int]
    """Axis lengths; -1 for a dynamic axis."""


class ModelInfo(_Answer):
    """Metadata of a model in the Open Inference Protocol."""

    name: str
    versions: list[str]
    platform: str
    inputs: list[TensorInfo]
    outputs: list[TensorInfo]


class ConfigText(_Answer):
    """A parameter of a configuration."""

    string_value: str


class ModelConfig(_Answer):
    """Configuration of a model in Triton's form."""

    name: str
    max_batch_size: int
    """0 if the batch is fixed."""
    parameters: dict[str, ConfigText]
    """`rcil.STEP` describes the model: metadata, interface and SHA-256, as JSON."""


class VersionInfo(_Answer):
    """One entry of the repository index."""

    name: str
    version: str
    state: Literal["READY"]
    reason: str


class BinarySize(_Answer):
    """Size of a tensor that follows the JSON."""

    binary_data_size: int


class OutputTensor(_Answer):
    """An output tensor; its values are in `data` or follow the JSON."""

    name: str
    datatype: Literal["UINT8", "INT32", "FP32"]
    shape: list[int]
    data: list[float] = []
    parameters: BinarySize | None = None


class Inferred(_Answer):
    """JSON part of an inference response."""

    model_name: str
    model_version: str
    outputs: list[OutputTensor]
    id: str = ""


class Agreed(_Answer):
    """Agreement of a new model with the old one on one image."""

    pixels: float
    """Share of all pixels that keep their class."""
    classes: dict[str, float]
    """IoU by name of each old class that at least one model saw; 0 for a class that the new model does not have."""


class Reloaded(_Answer):
    """Report of a reload."""

    step: int
    sha256: str
    previous_step: int
    previous_sha256: str
    missing: list[str]
    agreement: Agreed


class Described(_Answer):
    """Description of a model for the page."""

    step: int
    sha256: str
    device: str
    precision: str
    input: str
    classes: list[ClassInfo]


class ClassTables(_Answer):
    """Descriptions of both models."""

    current: Described
    previous: Described | None


class ClassShare(_Answer):
    """Share of an image that a class covers."""

    name: str
    id: int
    colour: list[int]
    share: float


class Numbers(_Answer):
    """Segmentation of an image as numbers."""

    step: int
    sha256: str
    latency_ms: float
    height: int
    width: int
    confidence: float | None
    classes: list[ClassShare]


def refusals(*statuses: int) -> dict[int | str, dict[str, Any]]:
    """OpenAPI entries of a route for error responses."""
    return {status: {"model": Refused, "description": MEANINGS[status]} for status in statuses}


def plain(kind: str | None = None) -> dict[int | str, dict[str, Any]]:
    """OpenAPI entry for a response of this media type; None for an empty response."""
    return {200: {"description": "Success.", "content": {} if kind is None else {kind: BYTES}}}


class RefusalError(RcilError):
    """A refused request; becomes a JSON response with `status`.

    Args:
        status: HTTP status.
        message: What is wrong, with the offending value.
        hint: The remedy.
    """

    def __init__(self, status: int, message: str, hint: str = "") -> None:
        super().__init__(message, hint)
        self.status = status

    @property
    def headers(self) -> dict[str, str]:
        """Headers that tell the client when to retry or how to authenticate."""
        if self.status in (409, 429, 503):
            return {"Retry-After": "1"}
        return {"WWW-Authenticate": "Bearer"} if self.status == 401 else {}


def message_with_hint(error: RcilError) -> str:
    """Message and hint in one line."""
    return f"{error.message}. {error.hint}" if error.hint else error.message
