"""Image upload: returns a mask, an overlay or numbers."""

from __future__ import annotations

import time
from typing import Annotated, Literal

import cv2
import numpy as np
from fastapi import APIRouter, Query
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from rcil.core.images import Image
from rcil.core.mask_classes import mask_png
from rcil_serve.http.models import Model
from rcil_serve.http.protocol.answers import BYTES, Numbers, refusals
from rcil_serve.http.protocol.body import Body, decode_image
from rcil_serve.http.service import Service, ServiceOf, Stopwatch
from rcil_serve.runtime.painter import Painter, shares
from rcil_serve.runtime.predictor import Segmentation
from rcil_serve.stream.outputs.masks import IdTable

Form = Literal["mask", "rows", "overlay", "json"]
router = APIRouter()


@router.post(
    "/segment",
    responses={
        200: {"model": Numbers, "description": "An image, or numbers.", "content": {"image/png": BYTES}},
        **refusals(400, 401, 403, 404, 408, 413, 415, 429, 500, 503, 504),
    },
    openapi_extra={
        "parameters": [{"in": "header", "name": "Content-Encoding", "schema": {"type": "string"}}],
        "requestBody": {
            "required": True,
            "content": {
                "image/png": BYTES,
                "image/jpeg": BYTES,
                "multipart/form-data": {
                    "schema": {"type": "object", "required": ["image"], "properties": {"image": BYTES["schema"]}}
                },
            },
        },
    },
)
async def segment(
    request: Request,
    service: ServiceOf,
    output: Form = "mask",
    alpha: Annotated[float, Query(ge=0, le=1)] = 0.5,
    model: Literal["current", "previous"] = "current",
) -> Response:
    """Segment a PNG or JPEG of any size, sent as the body or in a form."""
    return await service.answer(request, lambda body, watch: segmented(service, body, output, alpha, model, watch))


def segmented(service: Service, body: Body, output: Form, alpha: float, which: str, watch: Stopwatch) -> Response:
    """Segment an uploaded image."""
    image = decode_image(body, service.options.max_pixels)
    watch.lap("decode")
    with service.models.use(which) as model:
        start = time.perf_counter()
        found = model.predictor.segment(image)
        milliseconds = 1000 * (time.perf_counter() - start)
        watch.lap("infer")
        service.record(model, image, [found.mask])
        response = _answer(model, image, found, output, alpha, milliseconds)
        response.headers["X-Rcil-Step"] = model.version
        response.headers["X-Rcil-Sha256"] = model.backend.sha256
        response.headers["X-Rcil-Latency-Ms"] = f"{milliseconds:.2f}"
    watch.lap("encode")
    return response


def _answer(
    model: Model, image: Image, found: Segmentation, output: Form, alpha: float, milliseconds: float
) -> Response:
    if output == "json":
        return JSONResponse(_numbers(model, found, milliseconds))
    match output:
        case "mask":
            ids = IdTable(model.classes)
            content = mask_png(ids.of(found.mask), ids.chunk)
        case "rows":
            content = mask_png(found.mask if len(model.classes) <= 2**8 else found.mask.astype(np.uint16))
        case "overlay":
            drawn = Painter(model.classes, alpha).paint(image, found.mask, found.grid_size)
            content = cv2.imencode(".png", cv2.cvtColor(drawn, cv2.COLOR_RGB2BGR))[1].tobytes()
    return Response(content, media_type="image/png")


def _numbers(model: Model, found: Segmentation, milliseconds: float) -> dict[str, object]:
    height, width = found.mask.shape
    parts = shares(found.mask, len(model.classes))
    return {
        "step": model.step,
        "sha256": model.backend.sha256,
        "latency_ms": round(milliseconds, 2),
        "height": height,
        "width": width,
        "confidence": found.confidence,
        "classes": [
            {"name": info.name, "id": info.id, "colour": list(info.colour), "share": float(part)}
            for info, part in zip(model.classes, parts, strict=True)
        ],
    }
