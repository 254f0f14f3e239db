"""Rules about zones: "forklift covers more than 5 % of dock for 2 s"."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from rcil.core.errors import ConfigError, did_you_mean
from rcil.model.metadata import ClassInfo
from rcil_serve.runtime.backends import Mask
from rcil_serve.runtime.zones import PICTURE, WHOLE, Zone
from rcil_serve.watch.meters import Measure, Reading

PATTERN = re.compile(
    r"(?P<name>.+?) +covers +(?P<side>more|less) +than +(?P<percent>\d+(\.\d+)?) *% +of +(the +)?(zone +)?"
    r"(?P<zone>.+?)( +for +(?P<seconds>\d+(\.\d+)?) *s)?"
)
HINT = 'Write "forklift covers more than 5 % of dock for 2 s", with more or less, and "of the picture" for all of it.'


@dataclass(frozen=True)
class Rule:
    """A limit on the share of a zone that a class covers."""

    name: str
    """Name of the class."""
    zone: Zone
    limit: float
    """Share of the zone, from 0 to 1."""
    above: bool
    """Whether a share above the limit raises the alarm, or one below it."""
    seconds: float = 0.0
    """How long the limit must be passed, in every frame, before the alarm is raised, and kept before it is cleared."""

    @property
    def text(self) -> str:
        """The rule as a sentence."""
        side = "more" if self.above else "less"
        lasting = f" for {self.seconds:g} s" if self.seconds else ""
        return f"{self.name} covers {side} than {100 * self.limit:g} % of {self.zone.name}{lasting}"


def parse_rule(text: str, zones: Sequence[Zone]) -> Rule:
    """Parse a sentence; see `PATTERN`."""
    found = PATTERN.fullmatch(" ".join(text.split()))
    if found is None:
        raise ConfigError(f"'{text}' is not a rule", HINT)
    known = {zone.name: zone for zone in zones} | {PICTURE: WHOLE, PICTURE.removeprefix("the "): WHOLE}
    zone = known.get(found["zone"])
    if zone is None:
        hint = did_you_mean(found["zone"], known) or 'Name it with --zone "NAME=x,y x,y x,y".'
        raise ConfigError(f"there is no zone '{found['zone']}'", hint)
    limit = float(found["percent"]) / 100
    above = found["side"] == "more"
    if not (0 <= limit < 1 if above else 0 < limit <= 1):
        raise ConfigError(f"the rule '{text}' always or never holds", "Choose another percentage.")
    return Rule(found["name"], zone, limit, above, float(found["seconds"] or 0))


def check_classes(rules: Sequence[Rule], classes: Sequence[ClassInfo]) -> None:
    """Raise if a rule names a class that the model does not have."""
    names = [info.name for info in classes]
    for rule in rules:
        if rule.name not in names:
            raise ConfigError(f"the model has no class '{rule.name}'", did_you_mean(rule.name, names))


def coverage(rules: Sequence[Rule], classes: Sequence[ClassInfo], mask: Mask) -> list[Reading]:
    """One reading per rule, named after it.

    Args:
        rules: The rules.
        classes: Classes of the model that made the mask, in the order of rows.
        mask: Class rows [H, W].
    """
    rows = {info.name: row for row, info in enumerate(classes)}
    return [
        Reading(Measure.COVERAGE, rule.text, rule.zone.share(mask, rows[rule.name]))
        for rule in rules
        if rule.name in rows
    ]
