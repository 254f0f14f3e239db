"""`rcil-serve watch`; `rcil_serve.cli` registers it."""

from __future__ import annotations

from fractions import Fraction
from pathlib import Path
from typing import Annotated

import typer

from rcil.log import is_quiet
from rcil_serve.options import (
    MODELS,
    AsJson,
    AttemptsOption,
    BatchOption,
    DeviceOption,
    EndOption,
    FpsOption,
    MaxFramesOption,
    ModelOption,
    OverlapOption,
    PreviousOption,
    ReceiptOption,
    SizeOption,
    SourceArgument,
    StartOption,
    StrideOption,
    ThreadsOption,
    TileOption,
    TimelineOption,
    TimeoutOption,
    TrustOption,
    layout_of,
)


def watch(
    source: SourceArgument,
    model: ModelOption,
    previous: PreviousOption = None,
    every: Annotated[int, typer.Option(min=1, help="Compare and judge every how many-th frame.")] = 10,
    window: Annotated[float, typer.Option(help="Seconds over which measures are taken.")] = 60.0,
    min_agreement: Annotated[float, typer.Option(min=0, max=1, help="Alarm below this IoU with --previous.")] = 0.9,
    max_drift: Annotated[float, typer.Option(help="Alarm above this relative change of a class's area.")] = 0.3,
    max_flicker: Annotated[float, typer.Option(help="Alarm above this share of a class that comes and goes.")] = 0.1,
    quiet_after: Annotated[float, typer.Option(help="Alarm after so many seconds without a frame, if live.")] = 30.0,
    patience: Annotated[int, typer.Option(min=1, help="Judgements in a row that raise or clear an alarm.")] = 5,
    min_share: Annotated[float, typer.Option(min=0, max=1, help="Share of the picture a class needs.")] = 0.001,
    still: Annotated[float, typer.Option(min=0, help="Grey levels up to which a pixel counts as still.")] = 8.0,
    baseline: Annotated[float, typer.Option(help="Seconds at the start that areas are compared with.")] = 60.0,
    baseline_from: Annotated[Path | None, typer.Option(help="Areas of an earlier run to compare with.")] = None,
    save_baseline: Annotated[Path | None, typer.Option(help="Write this run's areas to a .json.")] = None,
    events: Annotated[Path | None, typer.Option(help="Append every event to this .jsonl.")] = None,
    metrics_port: Annotated[int | None, typer.Option(min=0, max=65535, help="Prometheus on 127.0.0.1.")] = None,
    timeline: TimelineOption = None,
    receipt: ReceiptOption = None,
    shadow: Annotated[
        Path | None, typer.Option(help="A new step to try out beside the deployed one.", autocompletion=MODELS)
    ] = None,
    promote_after: Annotated[int, typer.Option(min=1, help="Compared frames before each decision.")] = 500,
    promote_agreement: Annotated[
        float, typer.Option(min=0, max=1, help="IoU with --model that every old class must reach.")
    ] = 0.95,
    promote_needs_new: Annotated[
        bool, typer.Option("--promote-needs-new", help="Every new class must have been seen.")
    ] = False,
    promote_link: Annotated[
        Path | None, typer.Option(help="Symlink, or model file, that the service reads; replaced at once.")
    ] = None,
    promote_command: Annotated[
        str, typer.Option(help="Run after that, for example 'systemctl reload segment'; {model} is the model.")
    ] = "",
    stride: StrideOption = 1,
    start: StartOption = 0.0,
    end: EndOption = None,
    max_frames: MaxFramesOption = None,
    fps: FpsOption = 10.0,
    size: SizeOption = None,
    tile: TileOption = None,
    overlap: OverlapOption = 64,
    batch: BatchOption = 1,
    timeout: TimeoutOption = 10.0,
    attempts: AttemptsOption = 6,
    device: DeviceOption = "auto",
    threads: ThreadsOption = None,
    trust: TrustOption = None,
    fail_on_alarm: Annotated[bool, typer.Option("--fail-on-alarm", help="Exit code 9 if an alarm was raised.")] = False,
    as_json: AsJson = False,
) -> None:
    """Watch a deployed model for forgetting, without labels.

    Every frame is measured; on every Nth the previous step runs too. An alarm is a line here, in --events and a metric;
    with --json every line is a document.
    With --shadow a new step runs beside the deployed one, and takes its place once it agrees on the old classes.

    Examples:
        rcil-serve watch rtsp://camera.local/1 -m live.onnx --previous step1.onnx --events w.jsonl --metrics-port 9105

        rcil-serve watch yard.mp4 -m step2.onnx --previous step1.onnx --fail-on-alarm

        rcil-serve watch 0 -m live.onnx --shadow step3.onnx --promote-after 2000 --promote-link live.onnx
    """
    from rcil_serve.endings import complain, sigterm_as_interrupt
    from rcil_serve.video.run import default_receipt
    from rcil_serve.video.sources import Selection
    from rcil_serve.video.sources.live import LiveOptions
    from rcil_serve.watch.alarms import AlarmError, Limits
    from rcil_serve.watch.promotion import Promotion
    from rcil_serve.watch.request import WatchRequest
    from rcil_serve.watch.run import run_watch
    from rcil_serve.watch.trial import TrialRule
    from rcil_serve.watch.watcher import WatchSettings

    request = WatchRequest(
        source=source,
        model=model,
        receipt=receipt or default_receipt(events or timeline),
        previous=previous,
        shadow=shadow,
        settings=WatchSettings(every, window, min_share, still),
        limits=Limits(min_agreement, max_drift, max_flicker, quiet_after, patience),
        rule=TrialRule(promote_after, promote_agreement, promote_needs_new, min_share),
        promotion=Promotion(promote_link, promote_command, tuple(trust or ())),
        baseline_seconds=baseline,
        baseline=baseline_from,
        save_baseline=save_baseline,
        events=events,
        timeline=timeline,
        metrics_port=metrics_port,
        layout=layout_of(size, tile, overlap, batch),
        selection=Selection(stride, start, end, max_frames),
        live=LiveOptions(timeout, attempts),
        rate=Fraction(fps).limit_denominator(1001),
        device=device,
        threads=threads,
        trust=tuple(trust or ()),
    )
    with sigterm_as_interrupt():
        document = run_watch(
            request,
            lambda event: typer.echo(event.json if as_json else event.line),
            lambda address: None if is_quiet() else typer.echo(f"metrics: {address}", err=True),
        )
    complain(document, request.receipt, "measured")
    raised = document["watch"]["raised_alarms"]
    if fail_on_alarm and raised:
        names = ", ".join(f"{alarm['measure']} of {alarm['class']}".removesuffix(" of ") for alarm in raised)
        raise AlarmError(f"alarms were raised: {names}", f"See {request.receipt}.")
