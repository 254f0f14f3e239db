"""Decide whether a new model may be deployed, from measurements and how certain they are. No torch here."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Literal

from rcil.evaluation.bootstrap import MIN_GROUPS, Interval, scenes

if TYPE_CHECKING:
    from rcil.site.forgetting import Forgetting, NewClass, OldClass

MIN_PIXELS = 100
"""Classes with fewer pixels are not measured."""
MAX_NAMED = 3
"""Maximum number of classes that a reason names."""
Outcome = Literal["accepted", "uncertain", "rejected"]
State = Literal["kept", "few", "uncertain", "broken", "unmeasured", "free"]
"""`kept`, `broken`: the whole interval is on one side of the limit. `uncertain`: the limit is inside the interval.
`few`: kept, but measured in too few different scenes. `free`: no limit applies."""


@dataclass(frozen=True)
class Limits:
    """What a new model must fulfil."""

    max_drop: float
    """Maximum drop of a named old class in IoU points."""
    min_new: float
    """Minimum IoU of a new class in percent; 0 accepts any."""
    max_background_drop: float | None = None
    """Maximum drop of background, which contains everything without a name; None: any."""
    strict: bool = False
    """Whether the old logits are unchanged, so that nothing can have been forgotten."""


@dataclass(frozen=True)
class Finding:
    """The judgement of one class."""

    name: str
    role: Literal["old", "background", "new"]
    state: State
    text: str
    """What was measured, with the limit."""


@dataclass(frozen=True)
class Verdict:
    """The decision, with the finding of every class."""

    outcome: Outcome
    reason: str
    findings: tuple[Finding, ...]

    def as_document(self) -> dict[str, Any]:
        """JSON-ready; `rejected` is what the checkpoint records too."""
        return {
            "verdict": self.outcome,
            "reason": self.reason,
            "rejected": self.marked("rejected"),
            "findings": [asdict(finding) for finding in self.findings],
        }

    def marked(self, outcome: Outcome) -> str | None:
        """The reason if this is the outcome, else None: the marks in a model's metadata."""
        return self.reason if self.outcome == outcome else None


def judge(measured: Forgetting, limits: Limits) -> Verdict:
    """Reject a model that breaks a limit, accept one that keeps all of them, and otherwise say what is uncertain.

    A limit is broken or kept if the whole interval of the measurement says so. Old classes that the images do not show
    are no reason for doubt as long as others were measured; a new class that they do not show is.
    """
    background, *named = measured.old
    old = [_old(c, None if limits.strict else limits.max_drop, "old") for c in named]
    others = [_old(background, limits.max_background_drop, "background")]
    new = [_new(c, limits.min_new) for c in measured.new]
    findings = (*others, *old, *new)
    broken = [f for f in findings if f.state == "broken"]
    if broken:
        return Verdict("rejected", _listed([f.text for f in broken]), findings)
    doubts = [f.text for f in findings if f.state == "uncertain"]
    doubts += [f.text for f in (*others, *new) if f.state in ("few", "unmeasured")]
    if old and not any(f.state in ("kept", "free", "uncertain") for f in old):
        doubts.append(_nothing_measured(measured, old))
    if doubts:
        return Verdict("uncertain", _listed(doubts), findings)
    return Verdict("accepted", _praise(measured, old, limits), findings)


def _old(c: OldClass, limit: float | None, role: Literal["old", "background"]) -> Finding:
    if c.drop is None:
        text = f"{c.name} has only {c.pixels} pixels in the images, which is too few to measure it"
        return Finding(c.name, role, "free" if limit is None else "unmeasured", text)
    text = f"{c.name} dropped {c.drop:.1f} points{_range(c.interval)}"
    if limit is None:
        return Finding(c.name, role, "free", text)
    low, high = c.interval or (c.drop, c.drop)
    state: State = "broken" if low > limit else "uncertain" if high > limit else "kept"
    return _finding(c.name, role, state, f"{text}, limit {limit:g}", c.groups)


def _new(c: NewClass, minimum: float) -> Finding:
    if minimum <= 0:
        return Finding(c.name, "new", "free", f"{c.name} may have any IoU")
    if c.iou is None or c.pixels < MIN_PIXELS:
        text = f"the images show only {c.pixels} pixels of {c.name}, which is too few to measure it"
        return Finding(c.name, "new", "unmeasured", text)
    low, high = c.interval or (c.iou, c.iou)
    state: State = "broken" if high < minimum else "uncertain" if low < minimum else "kept"
    return _finding(
        c.name, "new", state, f"{c.name} reaches {c.iou:.1f} % IoU{_range(c.interval)}, required {minimum:g}", c.groups
    )


def _finding(name: str, role: Literal["old", "background", "new"], state: State, text: str, groups: int) -> Finding:
    """A finding; a limit that is kept in too few scenes only is not proven to be kept."""
    if state == "uncertain":
        text += ": too close to call"
    if state == "kept" and groups < MIN_GROUPS:
        state, text = "few", f"{text}, but in only {scenes(groups)}"
    return Finding(name, role, state, text)


def _nothing_measured(measured: Forgetting, old: Sequence[Finding]) -> str:
    if measured.groups < MIN_GROUPS:
        return f"forgetting was measured in only {scenes(measured.groups)}"
    if all(f.state == "unmeasured" for f in old):
        return f"forgetting could not be measured: {measured.images} images show no old class"
    return f"every old class was seen in fewer than {MIN_GROUPS} different scenes"


def _praise(measured: Forgetting, old: Sequence[Finding], limits: Limits) -> str:
    """Why a model is accepted."""
    reached = ", ".join(f"{c.name} {c.iou:.1f} %" for c in measured.new if c.iou is not None)
    learned = f"new classes reach at least {limits.min_new:g} % IoU ({reached})" if limits.min_new > 0 else ""
    worst = measured.worst
    if limits.strict:
        kept = "the logits of old classes are unchanged"
    elif worst is None or worst.drop is None:
        kept = "there was nothing to forget"
    else:
        kept = f"no old class lost more than {limits.max_drop:g} points"
        kept += f" (largest drop: {worst.name}, {worst.drop:.1f})" if worst.drop > 0 else " (none became worse)"
    unsure = {"unmeasured": "not measured", "few": f"seen in fewer than {MIN_GROUPS} scenes"}
    notes = {text: [f.name for f in old if f.state == state] for state, text in unsure.items()}
    rest = "".join(f"; {text}: {', '.join(names)}" for text, names in notes.items() if names)
    return " and ".join(filter(None, (kept, learned))) + rest


def _range(interval: Interval | None) -> str:
    return "" if interval is None else f" ({interval[0]:.1f} to {interval[1]:.1f})"


def _listed(texts: Sequence[str]) -> str:
    rest = f"; and {len(texts) - MAX_NAMED} more" if len(texts) > MAX_NAMED else ""
    return "; ".join(texts[:MAX_NAMED]) + rest
