"""What the routes answer, as the server's schema states it; the tests hold the server to it."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict

from rcil.core.errors import RcilError
from rcil.model.metadata import ClassInfo

BYTES: dict[str, Any] = {"schema": {"type": "string", "format": "binary"}}
MEANINGS = {
    400: "The request cannot be understood.",
    401: "The token is missing or wrong.",
    403: "The request comes from a page of another site.",
    404: "There is no such model or version.",
    408: "The body did not arrive in time.",
    409: "A reload is under way.",
    413: "The body, the image or the batch is too large.",
    415: "The body is packed in a way that is not taken.",
    422: "The new model was refused; the old one keeps serving.",
    429: "All places are taken.",
    500: "The server failed; its log says why.",
    503: "No worker became free in time.",
    504: "The model did not answer in time.",
}


class _Answer(BaseModel):
    model_config = ConfigDict(extra="forbid", protected_namespaces=(), use_attribute_docstrings=True)


class Refused(_Answer):
    """Every answer from 400 on."""

    error: str
    """In words."""


class ServerInfo(_Answer):
    """Who answers."""

    name: str
    version: str
    extensions: list[str]


class TensorInfo(_Answer):
    """An input or output."""

    name: str
    datatype: Literal["UINT8", "INT32", "FP32"]
    shape: list[int]
    """-1 is an axis that varies."""


class ModelInfo(_Answer):
    """A model of the Open Inference Protocol."""

    name: str
    versions: list[str]
    platform: str
    inputs: list[TensorInfo]
    outputs: list[TensorInfo]


class VersionInfo(_Answer):
    """One row of the repository's index."""

    name: str
    version: str
    state: Literal["READY"]
    reason: str


class BinarySize(_Answer):
    """Says that a tensor follows the JSON."""

    binary_data_size: int


class OutputTensor(_Answer):
    """A result; its numbers are here, or follow the JSON."""

    name: str
    datatype: Literal["UINT8", "INT32", "FP32"]
    shape: list[int]
    data: list[float] = []
    parameters: BinarySize | None = None


class Inferred(_Answer):
    """The JSON of an answer."""

    model_name: str
    model_version: str
    outputs: list[OutputTensor]
    id: str = ""


class Agreed(_Answer):
    """See `compare.Agreement`."""

    pixels: float | None
    classes: dict[str, float]


class Reloaded(_Answer):
    """What a reload did."""

    step: int
    sha256: str
    previous_step: int
    previous_sha256: str
    missing: list[str]
    agreement: Agreed


class Described(_Answer):
    """A model for the page."""

    step: int
    sha256: str
    device: str
    precision: str
    input: str
    classes: list[ClassInfo]


class ClassTables(_Answer):
    """Of both models."""

    current: Described
    previous: Described | None


class ClassShare(_Answer):
    """How much of an image a class has."""

    name: str
    id: int
    colour: list[int]
    share: float


class Numbers(_Answer):
    """An image as numbers."""

    step: int
    sha256: str
    latency_ms: float
    height: int
    width: int
    confidence: float | None
    classes: list[ClassShare]


def refusals(*statuses: int) -> dict[int | str, dict[str, Any]]:
    """The entries of a route's table for answers from 400 on."""
    return {status: {"model": Refused, "description": MEANINGS[status]} for status in statuses}


def plain(kind: str | None = None) -> dict[int | str, dict[str, Any]]:
    """The entry for an answer that is a file of this media type; None: an empty answer."""
    return {200: {"description": "As asked.", "content": {} if kind is None else {kind: BYTES}}}


class RefusalError(RcilError):
    """Becomes an answer with `status` and the words as JSON.

    Args:
        status: Of HTTP; from 500 on it is the server's fault.
        message: What is wrong, with the offending value.
        hint: What to do about it.
    """

    def __init__(self, status: int, message: str, hint: str = "") -> None:
        super().__init__(message, hint)
        self.status = status

    @property
    def headers(self) -> dict[str, str]:
        """Beside the words: when to come again, or what to bring."""
        if self.status in (409, 429, 503):
            return {"Retry-After": "1"}
        return {"WWW-Authenticate": "Bearer"} if self.status == 401 else {}


def message_with_hint(error: RcilError) -> str:
    """Message and remedy in one line."""
    return f"{error.message}. {error.hint}" if error.hint else error.message
