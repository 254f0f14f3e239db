"""`rcil-serve watch`; `rcil_serve.cli.app` registers it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from rcil.cli.console import make_notifier
from rcil.core.log import is_quiet
from rcil_serve.cli import options

if TYPE_CHECKING:
    from rcil_serve.watch.promotion import Promotion
    from rcil_serve.watch.trial import TrialRule


@dataclass(frozen=True)
class AlarmArgs:
    """The options that say what is measured, and when it raises an alarm."""

    every: Annotated[int, typer.Option(min=1, help="Compare and judge every Nth frame.")] = 10
    window: Annotated[float, typer.Option(help="Length of the measuring window in seconds.")] = 60.0
    min_agreement: Annotated[float, typer.Option(min=0, max=1, help="Alarm below this IoU with --previous.")] = 0.9
    max_drift: Annotated[float, typer.Option(help="Alarm above this relative change of a class's area.")] = 0.3
    max_flicker: Annotated[float, typer.Option(help="Alarm if more than this share of a class flickers.")] = 0.1
    quiet_after: Annotated[float, typer.Option(help="Alarm after this many seconds without a live frame.")] = 30.0
    patience: Annotated[int, typer.Option(min=1, help="Judgements in a row that raise or clear an alarm.")] = 5
    min_share: Annotated[float, typer.Option(min=0, max=1, help="Ignore classes below this share of the image.")] = (
        0.001
    )
    still: Annotated[float, typer.Option(min=0, help="Grey levels up to which a pixel counts as still.")] = 8.0

    def as_fields(self) -> dict[str, Any]:
        """The fields of `WatchRequest` that these options set, by name."""
        from rcil_serve.watch.alarms import Limits
        from rcil_serve.watch.watcher import WatchSettings

        limits = Limits(self.min_agreement, self.max_drift, self.max_flicker, self.quiet_after, self.patience)
        return {"settings": WatchSettings(self.every, self.window, self.min_share, self.still), "limits": limits}


@dataclass(frozen=True)
class PromotionArgs:
    """The options that say when a new step replaces the deployed one, and how."""

    shadow: Annotated[
        Path | None, typer.Option(help="A new step to try beside the deployed one.", autocompletion=options.MODELS)
    ] = None
    promote_after: Annotated[int, typer.Option(min=1, help="Compared frames before each decision.")] = 500
    promote_agreement: Annotated[
        float, typer.Option(min=0, max=1, help="IoU with --model that every old class must reach.")
    ] = 0.95
    promote_needs_new: Annotated[
        bool, typer.Option("--promote-needs-new", help="Every new class must have been seen.")
    ] = False
    promote_link: Annotated[
        Path | None, typer.Option(help="Symlink or model file that the service reads; replaced atomically.")
    ] = None
    promote_command: Annotated[
        str, typer.Option(help="Run after that, for example 'systemctl reload segment'; {model} is the model.")
    ] = ""

    def rule(self, min_share: float) -> TrialRule:
        """What the new step must achieve."""
        from rcil_serve.watch.trial import TrialRule

        return TrialRule(self.promote_after, self.promote_agreement, self.promote_needs_new, min_share)

    def promotion(self, trust: list[Path] | None) -> Promotion:
        """How the new step is promoted."""
        from rcil_serve.watch.promotion import Promotion

        return Promotion(self.promote_link, self.promote_command, tuple(trust or ()))


@dataclass(frozen=True)
class EventArgs:
    """The options about rules, and about where events and pictures go."""

    zone: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME=x,y x,y ...", help="A part of the picture: corners as shares of its sides."),
    ] = None
    rule: Annotated[
        list[str] | None,
        typer.Option(help="An alarm, such as 'forklift covers more than 5 % of dock for 2 s'; may be repeated."),
    ] = None
    events: Annotated[Path | None, typer.Option(help="Append every event to this .jsonl.")] = None
    webhook: Annotated[
        str | None,
        typer.Option(envvar="RCIL_WEBHOOK", help="Post every event to this address.", show_default=False),
    ] = None
    webhook_token: Annotated[
        str | None,
        typer.Option(envvar="RCIL_WEBHOOK_TOKEN", help="Bearer token for the webhook.", show_default=False),
    ] = None
    outbox: Annotated[
        Path | None, typer.Option(help="Folder for events that wait; next to the receipt by default.")
    ] = None
    metrics_port: Annotated[int | None, typer.Option(min=0, max=65535, help="Prometheus on 127.0.0.1.")] = None
    view: options.ViewOption = None
    view_token: options.ViewTokenOption = None

    def as_fields(self, receipt: Path) -> dict[str, Any]:
        """The fields of `WatchRequest` that these options set, by name."""
        from rcil_serve.live.server import parse_view
        from rcil_serve.runtime.zones import parse_zones
        from rcil_serve.watch.rules import parse_rule
        from rcil_serve.watch.webhook import WebhookOptions

        zones, outbox = parse_zones(self.zone or ()), self.outbox or receipt.with_suffix(".outbox")
        return {
            "zones": zones,
            "rules": tuple(parse_rule(text, zones) for text in dict.fromkeys(self.rule or ())),
            "events": self.events,
            "webhook": WebhookOptions(self.webhook, outbox, self.webhook_token) if self.webhook else None,
            "metrics_port": self.metrics_port,
            "view": None if self.view is None else parse_view(self.view, self.view_token),
        }


@options.with_option_groups
def watch(
    source: options.SourceArgument,
    model: options.ModelOption,
    *,
    previous: options.PreviousOption = None,
    alarms: AlarmArgs,
    baseline: Annotated[float, typer.Option(help="Seconds at the start that areas are compared with.")] = 60.0,
    baseline_from: Annotated[Path | None, typer.Option(help="Compare with the areas of an earlier run.")] = None,
    save_baseline: Annotated[Path | None, typer.Option(help="Write this run's areas to a .json.")] = None,
    reports: EventArgs,
    timeline: options.TimelineOption = None,
    receipt: options.ReceiptOption = None,
    promotion: PromotionArgs,
    stream: options.StreamArgs,
    fail_on_alarm: Annotated[bool, typer.Option("--fail-on-alarm", help="Exit code 9 if an alarm was raised.")] = False,
    as_json: options.AsJson = False,
) -> None:
    """Watch a deployed model for forgetting, without labels.

    Every frame is measured; on every Nth frame the previous step runs too. An alarm is a printed line, an entry in
    --events and a metric. With --json every printed line is a JSON document.
    Rules about zones raise alarms on every frame. --webhook posts all events, those of alarms with a picture.
    With --shadow a new step runs beside the deployed one, and replaces it once it agrees on the old classes.

    Examples:
        rcil-serve watch rtsp://camera.local/1 -m live.onnx --previous step1.onnx --events w.jsonl --metrics-port 9105

        rcil-serve watch yard.mp4 -m step2.onnx --previous step1.onnx --fail-on-alarm

        rcil-serve watch 0 -m live.onnx --view 8080 --rule 'forklift covers more than 5 % of the picture for 2 s'

        rcil-serve watch 0 -m live.onnx --shadow step3.onnx --promote-after 2000 --promote-link live.onnx
    """
    from rcil_serve.stream.shutdown import raise_source_errors, sigterm_as_interrupt
    from rcil_serve.video.run import default_receipt
    from rcil_serve.watch.alarms import AlarmError
    from rcil_serve.watch.run import WatchRequest, run_watch

    path = receipt or default_receipt(reports.events or timeline)
    request = WatchRequest(
        source=source,
        model=model,
        receipt=path,
        previous=previous,
        shadow=promotion.shadow,
        rule=promotion.rule(alarms.min_share),
        promotion=promotion.promotion(stream.trust),
        baseline_seconds=baseline,
        baseline=baseline_from,
        save_baseline=save_baseline,
        timeline=timeline,
        **reports.as_fields(path),
        **alarms.as_fields(),
        **stream.as_fields(),
    )
    with sigterm_as_interrupt():
        document = run_watch(
            request,
            lambda event: typer.echo(event.json if as_json else event.line),
            lambda address: None if is_quiet() else typer.echo(f"metrics: {address}", err=True),
            make_notifier(as_json=True),
        )
    raise_source_errors(document, request.receipt, "measured")
    raised = document["watch"]["raised_alarms"]
    if fail_on_alarm and raised:
        names = ", ".join(f"{alarm['measure']} of {alarm['class']}".removesuffix(" of ") for alarm in raised)
        raise AlarmError(f"alarms were raised: {names}", f"See {request.receipt}.")
