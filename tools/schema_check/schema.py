"""Checks in process that the server conforms to its own OpenAPI document, whatever the request."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import httpx
import schemathesis
from fastapi import FastAPI
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from schemathesis import GenerationMode
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    negative_data_rejection,
    response_headers_conformance,
    response_schema_conformance,
    status_code_conformance,
)

from rcil_serve.http.protocol.messages import InferRequest
from rcil_serve.http.routes.v2 import LoadRequest
from tools.schema_check.sent import bodies, pictures

Post = Callable[..., httpx.Response]
Statuses = dict[str, Counter[int]]
"""Number of responses by operation and status."""
CHECKS = [
    not_a_server_error,
    status_code_conformance,
    content_type_conformance,
    response_headers_conformance,
    response_schema_conformance,
]
TOO_LARGE = 413
SEGMENT, INFER = "/segment", "/v2/models/{name}/infer"
FIXED = {"name": "rcil", "version": "1"}
"""Name of the served model; any other gives 404."""


def schema_of(app: FastAPI) -> dict[str, Any]:
    """The OpenAPI document of the server, which does not publish it.

    The routes read their bodies themselves, so FastAPI does not know the request models. It also announces status 422
    for invalid parameters, which this server answers with 400.
    """
    document = app.openapi()
    schemas: dict[str, Any] = document["components"]["schemas"]
    for operation in (operation for path in document["paths"].values() for operation in path.values()):
        if "HTTPValidationError" in str(operation["responses"].get("422")):
            del operation["responses"]["422"]
    for name in ("HTTPValidationError", "ValidationError"):
        schemas.pop(name, None)
    for kind in (InferRequest, LoadRequest):
        own = kind.model_json_schema(ref_template="#/components/schemas/{model}")
        schemas |= own.pop("$defs", {})
        schemas[kind.__name__] = own
    return document


def hold_to_schema(app: FastAPI, examples: int) -> Statuses:
    """Send `examples` requests of several kinds to every operation; raise at the first violation.

    Args:
        app: The server; its model is called `rcil`.
        examples: Requests per operation and kind; fewer if there is little to vary.
    """
    schema = schemathesis.openapi.from_dict(schema_of(app))
    schema.app = app
    operations = {f"{one.method.upper()} {one.path}": one for one in _operations(schema)}
    statuses: Statuses = {name: Counter() for name in operations}
    for name, operation in operations.items():
        known = {key: value for key, value in FIXED.items() if f"{{{key}}}" in operation.path}
        for fixed in ({}, known) if known else ({},):
            for mode in GenerationMode:
                _generated(operation, mode, fixed, examples, statuses[name])
    with asyncio.Runner() as runner:
        transport = httpx.ASGITransport(app, raise_app_exceptions=False)
        client = httpx.AsyncClient(transport=transport, base_url="http://here")

        async def ask(path: str, sent: dict[str, Any]) -> httpx.Response:
            response = await client.post(path, **sent)
            await response.request.aread()  # the messages of the checks contain it
            return response

        def post(path: str, **sent: Any) -> httpx.Response:
            return runner.run(ask(path, sent))

        _pictures(post, operations[f"POST {SEGMENT}"], examples, statuses[f"POST {SEGMENT}"])
        _tensors(post, operations[f"POST {INFER}"], examples, statuses[f"POST {INFER}"])
    return statuses


def _operations(schema: Any) -> Iterator[Any]:
    return (result.ok() for result in schema.get_all_operations())


def _repeated(examples: int, strategy: st.SearchStrategy[Any], ask: Callable[[Any], None]) -> None:
    """Call `ask` with values of the strategy, which are the same in every run."""

    @settings(
        max_examples=examples,
        deadline=None,
        database=None,
        derandomize=True,
        phases=(Phase.generate, Phase.shrink),
        suppress_health_check=list(HealthCheck),
    )
    @given(strategy)
    def body(value: Any) -> None:
        ask(value)

    body()


def _generated(
    operation: Any, mode: GenerationMode, fixed: dict[str, str], examples: int, statuses: Counter[int]
) -> None:
    """Send valid and invalid requests according to the schema."""
    if mode is GenerationMode.NEGATIVE and not _can_be_wrong(operation):
        return

    def ask(case: Any) -> None:
        response = case.call()
        refused_for_size = response.status_code == TOO_LARGE  # the check of invalid requests does not count it
        case.validate_response(response, checks=CHECKS if refused_for_size else [*CHECKS, negative_data_rejection])
        check_headers(dict(response.headers))
        statuses[response.status_code] += 1

    _repeated(examples, operation.as_strategy(generation_mode=mode, path_parameters=fixed or None), ask)


def _can_be_wrong(operation: Any) -> bool:
    return bool(operation.body) or bool(operation.query) or bool(operation.headers)


def _pictures(post: Post, operation: Any, examples: int, statuses: Counter[int]) -> None:
    """Send intact and damaged images."""

    def ask(sent: tuple[bytes, str, bool]) -> None:
        data, output, as_form = sent
        body: dict[str, Any] = {"files": {"image": ("a.png", data)}} if as_form else {"content": data}
        _hold(operation, post(f"{SEGMENT}?output={output}", **body), statuses)

    forms = st.sampled_from(("mask", "overlay", "json"))
    _repeated(examples, st.tuples(pictures(), forms, st.booleans()), ask)


def _tensors(post: Post, operation: Any, examples: int, statuses: Counter[int]) -> None:
    """Send inference requests that are nearly valid."""

    def ask(sent: tuple[bytes, dict[str, str]]) -> None:
        content, headers = sent
        _hold(operation, post(INFER.format(**FIXED), content=content, headers=headers), statuses)

    _repeated(examples, bodies(), ask)


def _hold(operation: Any, response: httpx.Response, statuses: Counter[int]) -> None:
    operation.Case(path_parameters={"name": FIXED["name"]}).validate_response(response, checks=CHECKS)
    check_headers(dict(response.headers))
    statuses[response.status_code] += 1


def check_headers(headers: dict[str, Any]) -> None:
    """Check that browsers may not guess the type of a response, and that pages of other sites may not read it."""
    names = {name.lower() for name in headers}
    assert "x-content-type-options" in names, "nosniff is missing"
    assert not any(name.startswith("access-control-") for name in names), "other sites are let in"
    assert "server" not in names, "the server tells its name"
