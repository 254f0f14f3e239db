"""The OpenAPI document of the server. It is not served: nobody needs it at run time."""

from __future__ import annotations

from typing import Any

from fastapi import FastAPI

from rcil_serve.http.protocol.messages import InferRequest
from rcil_serve.http.routes.v2 import LoadRequest

_PLACE = "#/components/schemas/{model}"


def schema_of(app: FastAPI) -> dict[str, Any]:
    """What can be asked and what is answered.

    The routes read their bodies themselves, so FastAPI does not know the models in them; and it announces a 422 of its
    own for wrong parameters, which are a 400 here.
    """
    document = app.openapi()
    schemas: dict[str, Any] = document["components"]["schemas"]
    for operation in (operation for path in document["paths"].values() for operation in path.values()):
        if "HTTPValidationError" in str(operation["responses"].get("422")):
            del operation["responses"]["422"]
    for name in ("HTTPValidationError", "ValidationError"):
        schemas.pop(name, None)
    for kind in (InferRequest, LoadRequest):
        own = kind.model_json_schema(ref_template=_PLACE)
        schemas |= own.pop("$defs", {})
        schemas[kind.__name__] = own
    return document
