"""The Open Inference Protocol v2 over REST, as `tritonclient.http` speaks it."""

from __future__ import annotations

import asyncio
import math
from typing import Any

from fastapi import APIRouter
from pydantic import BaseModel, ConfigDict, ValidationError
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from rcil import __version__
from rcil.core.images import Image
from rcil_export.graph.description import first_problem
from rcil_serve.http.models import CURRENT, Model
from rcil_serve.http.protocol.answers import (
    BYTES,
    Inferred,
    ModelConfig,
    ModelInfo,
    RefusalError,
    Reloaded,
    ServerInfo,
    VersionInfo,
    plain,
    refusals,
)
from rcil_serve.http.protocol.body import Body, read_body
from rcil_serve.http.protocol.messages import (
    HEADER_LENGTH,
    Array,
    answer_to,
    check_outputs,
    input_of,
    input_tensor,
    named,
    output_tensors,
    parse_request,
)
from rcil_serve.http.service import Service, ServiceOf, Stopwatch

OCTETS = "application/octet-stream"
EXTENSIONS = ["binary_tensor_data", "model_configuration", "model_repository"]
PLATFORMS = {".onnx": "onnxruntime_onnx", ".engine": "tensorrt_plan", ".plan": "tensorrt_plan"}
MODEL, VERSION = "/models/{name}", "/models/{name}/versions/{version}"
MAX_LOAD_BYTES = 2**16
"""Maximum size of a reload request, which takes no slot in the queue and so must be small."""
UNKNOWN = refusals(401, 404)
INFER: dict[str, Any] = {
    "responses": {
        200: {"model": Inferred, "description": "JSON, or JSON and the tensors.", "content": {OCTETS: BYTES}},
        **refusals(400, 401, 403, 404, 408, 413, 415, 429, 500, 503, 504),
    },
    "openapi_extra": {
        "parameters": [
            {"in": "header", "name": HEADER_LENGTH, "schema": {"type": "integer", "minimum": 1}},
            {"in": "header", "name": "Content-Encoding", "schema": {"type": "string"}},
        ],
        "requestBody": {
            "required": True,
            "content": {"application/json": {"schema": {"$ref": "#/components/schemas/InferRequest"}}, OCTETS: BYTES},
        },
    },
}
"""OpenAPI entries of both inference routes."""
router = APIRouter(prefix="/v2")


class LoadParameters(BaseModel):
    """Parameters of a reload; others of the protocol, such as a configuration, are not supported."""

    model_config = ConfigDict(extra="forbid", strict=True)

    force: bool = False
    """Accept a model that is incompatible with the old one."""


class LoadRequest(BaseModel):
    """Body of a reload request; may be empty."""

    parameters: LoadParameters = LoadParameters()


@router.get("", response_model=ServerInfo, responses=refusals(401))
async def server() -> dict[str, object]:
    """Name and version of the server."""
    return {"name": "rcil", "version": __version__, "extensions": EXTENSIONS}


@router.get("/health/live", response_class=Response, responses=plain())
async def live() -> Response:
    """Whether the process responds."""
    return Response()


@router.get("/health/ready", response_class=Response, responses=plain())
async def ready() -> Response:
    """Whether the model is loaded and warm; the server does not listen before."""
    return Response()


@router.get(f"{MODEL}/ready", response_class=Response, responses=plain() | UNKNOWN)
@router.get(f"{VERSION}/ready", response_class=Response, responses=plain() | UNKNOWN)
async def model_ready(name: str, service: ServiceOf, version: str = CURRENT) -> Response:
    """Whether this model, or this version of it, is available."""
    check_name(name, service)
    with service.models.use(version):
        return Response()


@router.get(MODEL, response_model=ModelInfo, responses=UNKNOWN)
@router.get(VERSION, response_model=ModelInfo, responses=UNKNOWN)
async def model_metadata(name: str, service: ServiceOf, version: str = CURRENT) -> dict[str, object]:
    """The tensors of a model."""
    check_name(name, service)
    with service.models.use(version) as model:
        return {
            "name": name,
            "versions": service.models.versions,
            "platform": PLATFORMS.get(service.options.model.suffix.lower(), ""),
            "inputs": [input_tensor(model.backend).describe()],
            "outputs": [tensor.describe() for tensor in output_tensors(model.backend)],
        }


@router.get(f"{MODEL}/config", response_model=ModelConfig, responses=UNKNOWN)
@router.get(f"{VERSION}/config", response_model=ModelConfig, responses=UNKNOWN)
async def model_config(name: str, service: ServiceOf, version: str = CURRENT) -> dict[str, object]:
    """The largest batch, and the description of the model: classes, colours, sizes."""
    check_name(name, service)
    with service.models.use(version) as model:
        return model.config(name)


@router.post(f"{MODEL}/infer", **INFER)
@router.post(f"{VERSION}/infer", **INFER)
async def infer(name: str, request: Request, service: ServiceOf, version: str = CURRENT) -> Response:
    """Segment a batch in the format of the graph; mask values are class rows."""
    check_name(name, service)
    header_length = request.headers.get(HEADER_LENGTH)
    return await service.answer(request, lambda body, watch: inferred(service, version, body, header_length, watch))


@router.post("/repository/index", response_model=list[VersionInfo], responses=refusals(401, 403))
async def index(service: ServiceOf) -> list[dict[str, str]]:
    """All available versions."""
    return [
        {"name": service.options.name, "version": version, "state": "READY", "reason": ""}
        for version in service.models.versions
    ]


@router.post(
    "/repository/models/{name}/load",
    responses={
        200: {"model": Reloaded, "description": "The reloaded model is being served."},
        **refusals(400, 401, 403, 404, 408, 409, 413, 422, 500),
    },
    openapi_extra={
        "requestBody": {"content": {"application/json": {"schema": {"$ref": "#/components/schemas/LoadRequest"}}}}
    },
)
async def load(name: str, request: Request, service: ServiceOf) -> JSONResponse:
    """Reload the model file; the old model serves until the new one has run successfully."""
    check_name(name, service)
    body = await read_body(request, MAX_LOAD_BYTES, service.options.timeout)
    try:
        wanted = LoadRequest.model_validate_json(bytes(body) or b"{}")
    except ValidationError as error:
        raise RefusalError(400, f"invalid request: {first_problem(error)}") from error
    return JSONResponse(await asyncio.to_thread(service.reloader.reload, force=wanted.parameters.force))


def check_name(name: str, service: Service) -> None:
    """Refuse with 404 if the model is unknown."""
    if name != service.options.name:
        raise RefusalError(404, f"unknown model '{name}'", f"Known: {service.options.name}.")


def inferred(service: Service, version: str, body: Body, header_length: str | None, watch: Stopwatch) -> Response:
    """Process an inference request."""
    request, binary = parse_request(body, header_length)
    with service.models.use(version) as model:
        tensor = input_tensor(model.backend)
        check_outputs(request, [output.name for output in output_tensors(model.backend)])
        batch = input_of(request, binary, tensor)
        if math.prod(batch.shape) // 3 > service.options.max_pixels:
            raise RefusalError(
                413,
                f"the batch has more than {service.options.max_pixels} pixels",
                "Send a smaller batch, or raise --max-pixels.",
            )
        watch.lap("decode")
        outputs = model.backend.run(batch)
        watch.lap("infer")
        service.record(model, first_image(model, batch), list(outputs.mask))
        content, header = answer_to(request, service.options.name, model.version, named(outputs))
    watch.lap("encode")
    if header is None:
        return Response(content, media_type="application/json")
    return Response(content, media_type=OCTETS, headers={HEADER_LENGTH: str(header)})


def first_image(model: Model, batch: Array) -> Image | None:
    """The first image of a batch as RGB [H, W, 3]; None if the batch is normalised."""
    if model.backend.interface.input != "uint8":
        return None
    image: Image = batch[0]
    return image if model.backend.metadata.colour_order == "RGB" else image[..., ::-1]
