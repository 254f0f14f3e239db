"""`rcil-serve http`; `rcil_serve.cli` registers it."""

from __future__ import annotations

from typing import Annotated

import typer

from rcil_serve.http.options import HttpOptions
from rcil_serve.options import DeviceOption, ModelOption, PreviousOption, ThreadsOption, TrustOption


def http(
    model: ModelOption,
    previous: PreviousOption = None,
    name: Annotated[str, typer.Option(help="Of the model, for clients of the protocol.")] = HttpOptions.name,
    host: Annotated[str, typer.Option(help="Address to listen on; 0.0.0.0 for all.")] = HttpOptions.host,
    port: Annotated[int, typer.Option(min=0, max=65535, help="0 takes any free one.")] = HttpOptions.port,
    token: Annotated[
        str | None, typer.Option(envvar="RCIL_TOKEN", help="Bearer token that requests must carry.", show_default=False)
    ] = None,
    queue: Annotated[int, typer.Option(min=0, help="Requests that may wait; more get 429.")] = HttpOptions.queue,
    workers: Annotated[int, typer.Option(min=1, help="Requests that run at once.")] = HttpOptions.workers,
    max_bytes: Annotated[int, typer.Option(min=1, help="Of a request's body.")] = HttpOptions.max_bytes,
    max_pixels: Annotated[int, typer.Option(min=1, help="Of an image, or of a batch.")] = HttpOptions.max_pixels,
    timeout: Annotated[float, typer.Option(min=0.001, help="Seconds for a whole request.")] = HttpOptions.timeout_s,
    device: DeviceOption = "auto",
    threads: ThreadsOption = None,
    trust: TrustOption = None,
) -> None:
    """Serve a model over HTTP: Open Inference Protocol, image upload, metrics and a page. SIGHUP reads it again.

    Example: `rcil-serve http --model deployed/model.onnx --previous before/model.onnx`
    """
    from rcil_serve.http.run import serve

    serve(
        HttpOptions(
            model=model,
            previous=previous,
            name=name,
            host=host,
            port=port,
            token=token,
            queue=queue,
            workers=workers,
            max_bytes=max_bytes,
            max_pixels=max_pixels,
            timeout_s=timeout,
            device=device,
            threads=threads,
            trust=tuple(trust or ()),
        )
    )
