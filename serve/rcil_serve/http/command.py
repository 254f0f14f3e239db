"""`rcil-serve http`; `rcil_serve.cli.app` registers it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import typer

from rcil_serve.cli import options
from rcil_serve.http.options import HttpOptions


@dataclass(frozen=True)
class HttpArgs:
    """The options of `rcil-serve http`, with the names and defaults of `HttpOptions`."""

    model: options.ModelOption
    previous: options.PreviousOption = HttpOptions.previous
    name: Annotated[str, typer.Option(help="Name of the model in the protocol.")] = HttpOptions.name
    host: Annotated[str, typer.Option(help="Address to listen on; 0.0.0.0 for all interfaces.")] = HttpOptions.host
    port: Annotated[int, typer.Option(min=0, max=65535, help="Port; 0 for any free one.")] = HttpOptions.port
    token: Annotated[
        str | None, typer.Option(envvar="RCIL_TOKEN", help="Bearer token that requests must send.", show_default=False)
    ] = None
    queue: Annotated[int, typer.Option(min=0, help="Requests that may wait; others get 429.")] = HttpOptions.queue
    workers: Annotated[
        int | None,
        typer.Option(min=1, help="Requests that run concurrently; by default one more than the batch."),
    ] = HttpOptions.workers
    max_batch: Annotated[
        int | None,
        typer.Option(
            min=1, help="Run images of this many requests together; by default all that fit on a GPU, 1 on a CPU."
        ),
    ] = HttpOptions.max_batch
    max_bytes: Annotated[int, typer.Option(min=1, help="Size limit of a request body.")] = HttpOptions.max_bytes
    max_pixels: Annotated[int, typer.Option(min=1, help="Pixel limit of an image or batch.")] = HttpOptions.max_pixels
    timeout: Annotated[float, typer.Option(min=0.001, help="Seconds until a request fails.")] = HttpOptions.timeout
    scale: options.TrainingScale = HttpOptions.scale
    device: options.DeviceOption = HttpOptions.device
    threads: options.ThreadsOption = HttpOptions.threads
    trust: options.TrustOption = None


@options.with_option_groups
def http(args: HttpArgs) -> None:
    """Serve a model over HTTP: Open Inference Protocol, image upload, metrics and a page. SIGHUP reloads it.

    Example: `rcil-serve http --model deployed/model.onnx --previous before/model.onnx`
    """
    from rcil_serve.http.run import serve

    serve(HttpOptions(**(vars(args) | {"trust": tuple(args.trust or ())})))
