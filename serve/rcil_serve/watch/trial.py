"""Decides whether a new step may replace the current one, in rounds of comparisons."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from rcil.core.errors import ConfigError
from rcil.model.class_match import ClassMatch
from rcil_serve.runtime.backends import Mask
from rcil_serve.runtime.overlap import Overlap, overlap_of, pair_counts
from rcil_serve.runtime.painter import BACKGROUND


@dataclass(frozen=True)
class TrialRule:
    """Conditions for the promotion of a new step."""

    frames: int = 500
    """Number of compared frames per round."""
    agreement: float = 0.95
    """Minimum IoU of every old class with the current step, over a round."""
    needs_new: bool = False
    """Whether every new class must have been seen."""
    min_share: float = 0.001
    """A class counts as seen if it covers this share of at least one image of the round."""

    def __post_init__(self) -> None:
        if self.frames < 1:
            raise ConfigError(f"a round has {self.frames} frames", "Choose 1 or more for --promote-after.")
        if not 0 <= self.agreement <= 1:
            raise ConfigError(
                f"the required agreement is {self.agreement:g}", "Choose a --promote-agreement from 0 to 1."
            )


@dataclass(frozen=True)
class Verdict:
    """Result of one round."""

    frames: int
    agreement: dict[str, float]
    """IoU by name of the old classes that were seen."""
    reasons: tuple[str, ...]
    """Reasons against promotion; empty if the new step may be promoted."""

    @property
    def passed(self) -> bool:
        """Whether the new step may be promoted."""
        return not self.reasons


class Trial:
    """Compares the current step with a new one in rounds, in constant memory.

    A round is judged once, at its end; judging after every frame would promote a step at its luckiest moment.

    Args:
        matching: Classes of the current step and the new one.
        rule: Conditions for promotion.
    """

    def __init__(self, matching: ClassMatch, rule: TrialRule) -> None:
        self._matching, self._rule = matching, rule
        self._begin()

    def _begin(self) -> None:
        count = len(self._matching.names)
        self.frames = 0
        """Frames compared in this round."""
        self._sums = Overlap(np.zeros(count, np.int64), np.zeros(count, np.int64))
        self._seen = np.zeros(count, bool)
        self._new_seen = np.zeros(len(self._matching.added), bool)

    def add(self, current: Mask, new: Mask) -> Verdict | None:
        """Add the masks [H, W] of both models for one image; return a verdict if this ends a round."""
        pairs = pair_counts(current, new, self._matching.counts)
        overlap = overlap_of(pairs, self._matching)
        enough = max(1.0, self._rule.min_share * current.size)
        self._sums = Overlap(self._sums.both + overlap.both, self._sums.either + overlap.either)
        self._seen |= overlap.either >= enough
        self._new_seen |= pairs.sum(axis=0)[self._matching.added_rows] >= enough
        self.frames += 1
        if self.frames < self._rule.frames:
            return None
        verdict = self._judge()
        self._begin()
        return verdict

    def agreement(self) -> dict[str, float]:
        """IoU by name in this round so far of the old classes that were seen."""
        found = zip(self._matching.names, self._sums.iou(), self._seen, strict=True)
        return {name: iou for name, iou, seen in found if seen and iou is not None}

    def _judge(self) -> Verdict:
        agreement = self.agreement()
        reasons = [
            f"{name} has an IoU of {iou:.3f}, below {self._rule.agreement:.3f}"
            for name, iou in agreement.items()
            if iou < self._rule.agreement
        ]
        objects = self._matching.old_rows != BACKGROUND
        if objects.any() and not self._seen[objects].any():
            reasons.append("no old class was seen")
        if self._rule.needs_new:
            unseen = [name for name, seen in zip(self._matching.added, self._new_seen, strict=True) if not seen]
            reasons += [f"{name} was not seen" for name in unseen]
        return Verdict(self.frames, agreement, tuple(reasons))
