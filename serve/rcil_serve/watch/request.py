"""The request of `rcil-serve watch`."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rcil.core.errors import ConfigError
from rcil_serve.stream.options import StreamOptions
from rcil_serve.watch.alarms import Limits
from rcil_serve.watch.promotion import Promotion
from rcil_serve.watch.trial import TrialRule
from rcil_serve.watch.watcher import WatchSettings


@dataclass(frozen=True)
class WatchRequest(StreamOptions):
    """What `rcil-serve watch` is asked to do."""

    source: str
    model: Path
    receipt: Path
    previous: Path | None = None
    shadow: Path | None = None
    settings: WatchSettings = field(default_factory=WatchSettings)
    limits: Limits = field(default_factory=Limits)
    rule: TrialRule = field(default_factory=TrialRule)
    promotion: Promotion = field(default_factory=Promotion)
    baseline_seconds: float = 60.0
    baseline: Path | None = None
    """Baseline file to compare with, instead of the first seconds."""
    save_baseline: Path | None = None
    events: Path | None = None
    timeline: Path | None = None
    metrics_port: int | None = None

    def __post_init__(self) -> None:
        if self.baseline_seconds <= 0:
            raise ConfigError(f"the baseline is {self.baseline_seconds:g} s long", "Choose a longer --baseline.")
        if self.shadow is None:
            if self.promotion.link is not None or self.promotion.command:
                raise ConfigError("there is no model to promote", "Name the new step with --shadow.")
            return
        if not self.shadow.exists():
            raise ConfigError(f"{self.shadow} does not exist", "Check the path of --shadow.")
        self.promotion.check(self.shadow)

    def outputs(self) -> dict[str, Path]:
        """Files to write, by name."""
        named = {"events": self.events, "timeline": self.timeline, "baseline": self.save_baseline}
        return {name: path for name, path in named.items() if path is not None}

    def as_document(self) -> dict[str, Any]:
        """The options as JSON-ready values, without the command, which may contain a password."""
        return {
            "every": self.settings.every,
            "window": self.settings.window,
            "min_share": self.settings.min_share,
            "still": self.settings.still,
            "min_agreement": self.limits.min_agreement,
            "max_drift": _finite(self.limits.max_drift),
            "max_flicker": _finite(self.limits.max_flicker),
            "quiet_after": _finite(self.limits.max_silence),
            "patience": self.limits.patience,
            "baseline": self.baseline_seconds if self.baseline is None else str(self.baseline),
            "promote_after": self.rule.frames,
            "promote_agreement": self.rule.agreement,
            "promote_needs_new": self.rule.needs_new,
            "promote_link": None if self.promotion.link is None else str(self.promotion.link),
            **super().as_document(),
        }


def _finite(value: float) -> float | None:
    """Return None for infinity, which JSON cannot represent."""
    return value if value < float("inf") else None
