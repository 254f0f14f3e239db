"""The results of a comparison, as numbers and as a sentence."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rcil_serve.diff.tally import BadSecond, Shares, Tally
from rcil_serve.diff.transitions import APPEARED, FORGOTTEN, KINDS, LEARNED, LOST, SAME, CommonClasses, kind_table

NAMED = 3
"""Number of classes that the headline names for each kind."""
HEADLINE_NAMES = {FORGOTTEN: "suspected forgotten"}


@dataclass(frozen=True)
class Transition:
    """Pixels that change from one class to another."""

    old: str
    new: str
    kind: str
    pixels: int
    share: float
    """Share of all pixels."""
    share_of_old: float
    """Share of the pixels of the old class."""


@dataclass(frozen=True)
class Findings:
    """The result of a comparison."""

    frames: int
    names: list[str]
    """Names of all classes of either model."""
    added: list[str]
    """Classes that only the new model has."""
    removed: list[str]
    """Classes that only the old model has."""
    matrix: NDArray[np.int64]
    """Pixels [old class, new class], in the order of `names`."""
    kinds: NDArray[np.uint8]
    """Kind of every cell of `matrix`."""
    by_kind: NDArray[np.int64]
    """Pixels [kinds]."""
    transitions: list[Transition]
    """Transitions that occur, most frequent first."""
    worst: list[BadSecond]
    times: NDArray[np.float64]
    """Start of each time step, in seconds."""
    curves: NDArray[np.float64]
    """Mean shares in each time step [steps, kinds]."""
    step_seconds: float

    @property
    def pixels(self) -> int:
        """Number of compared pixels."""
        return int(self.matrix.sum())

    @property
    def shares(self) -> Shares:
        """Share of the pixels by kind [kinds]."""
        return np.asarray(self.by_kind / max(1, self.pixels), np.float64)

    def as_document(self) -> dict[str, Any]:
        """The results as JSON-ready values."""
        return {
            "headline": headline(self),
            "frames": self.frames,
            "pixels": self.pixels,
            "classes": {"names": self.names, "added": self.added, "removed": self.removed},
            "kinds": {
                kind.name: {"pixels": int(count), "share": float(share), "meaning": kind.meaning}
                for kind, count, share in zip(KINDS, self.by_kind, self.shares, strict=True)
            },
            "matrix": self.matrix.tolist(),
            "transitions": [asdict(one) for one in self.transitions],
            "worst_seconds": [_second(bad) for bad in self.worst],
            "timeline": {
                "step_seconds": self.step_seconds,
                "times": self.times.tolist(),
                "shares": {kind.name: self.curves[:, row].tolist() for row, kind in enumerate(KINDS)},
            },
        }


def findings_of(tally: Tally, classes: CommonClasses) -> Findings:
    """Summarise everything that was counted so far."""
    kinds, names = kind_table(classes), classes.names
    times, curves = tally.timeline.curves()
    return Findings(
        frames=tally.frames,
        names=names,
        added=[names[row] for row in classes.added],
        removed=[names[row] for row in classes.removed],
        matrix=tally.matrix,
        kinds=kinds,
        by_kind=tally.by_kind,
        transitions=_transitions(tally.matrix, kinds, names),
        worst=tally.worst.ranked(),
        times=times,
        curves=curves,
        step_seconds=tally.timeline.seconds,
    )


def headline(found: Findings) -> str:
    """One sentence: `2.1 % of all pixels changed: 1.4 % learned (road), 0.3 % suspected forgotten (building)`."""
    shares = found.shares
    if not found.by_kind[SAME + 1 :].any():
        return "No pixel changed."
    parts = [
        f"{percent(shares[kind])} {HEADLINE_NAMES.get(kind, KINDS[kind].name)} ({', '.join(_named(found, kind))})"
        for kind in np.argsort(-found.by_kind, kind="stable").tolist()
        if kind != SAME and found.by_kind[kind]
    ]
    return f"{percent(1 - shares[SAME])} of all pixels changed: {', '.join(parts)}."


def percent(share: float) -> str:
    """Format a share, with enough decimals to distinguish it from zero."""
    if 0 < share < 0.00005:
        return "under 0.01 %"
    return f"{100 * share:.2f} %" if 0 < share < 0.001 else f"{100 * share:.1f} %"


def _named(found: Findings, kind: int) -> list[str]:
    """Name the most frequent classes of a kind's transitions, and count the rest."""
    names: dict[str, None] = {}
    for one in found.transitions:
        if one.kind == KINDS[kind].name:
            names[_subject(one, kind)] = None
    listed = list(names)
    more = len(listed) - NAMED
    return listed[:NAMED] + ([f"{more} more"] if more > 0 else [])


def _subject(one: Transition, kind: int) -> str:
    """Name the class or classes that matter in a transition of this kind."""
    if kind in (LEARNED, APPEARED):
        return one.new
    return one.old if kind in (FORGOTTEN, LOST) else f"{one.old} → {one.new}"


def _transitions(matrix: NDArray[np.int64], kinds: NDArray[np.uint8], names: Sequence[str]) -> list[Transition]:
    whole, of_old = matrix.sum(), matrix.sum(axis=1)
    rows, columns = np.nonzero(np.where(kinds != SAME, matrix, 0))
    found = [
        Transition(
            old=names[row],
            new=names[column],
            kind=KINDS[kinds[row, column]].name,
            pixels=int(matrix[row, column]),
            share=float(matrix[row, column] / whole),
            share_of_old=float(matrix[row, column] / of_old[row]),
        )
        for row, column in zip(rows.tolist(), columns.tolist(), strict=True)
    ]
    return sorted(found, key=lambda one: one.pixels, reverse=True)


def _second(bad: BadSecond) -> dict[str, Any]:
    return {
        "second": bad.second,
        "frames": bad.frames,
        "shares": _by_name(bad.shares),
        "worst_frame": {
            "frame": bad.frame,
            "time": round(bad.time, 6),
            **({"file": bad.name} if bad.name else {}),
            "shares": _by_name(bad.frame_shares),
        },
    }


def _by_name(shares: Shares) -> dict[str, float]:
    return {kind.name: float(share) for kind, share in zip(KINDS, shares, strict=True) if share > 0}
