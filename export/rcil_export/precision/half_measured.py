"""fp16 or bf16 with as little left in fp32 as the masks allow."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

import onnx

from rcil_export.precision.compare import agreement, rows_of
from rcil_export.precision.feeds import Feed
from rcil_export.precision.half import HalfKind, HalfReport, classifier_of, tail_of, to_half
from rcil_export.precision.ranges import Ranges

GOAL = 0.999


@dataclass(frozen=True)
class MeasuredHalf:
    """A converted graph and how well it agrees with fp32."""

    document: onnx.ModelProto
    report: HalfReport
    agreement: float
    """Share of pixels with the class that the fp32 graph gives."""
    reached: bool
    """Whether that is the goal; if nothing reaches it, this is the best that was tried."""


def half_within(
    document: onnx.ModelProto,
    kind: HalfKind,
    feeds: Iterable[Feed],
    ranges: Ranges | None,
    goal: float = GOAL,
    progress: Callable[[str, float], None] = lambda what, agreement: None,
) -> MeasuredHalf:
    """The cheapest form that reaches the goal: all in `kind`, the final upsampling in fp32, or the classifier too.

    If the dearest form does not reach it, the one between is not tried.

    Args:
        document: In fp32.
        kind: The short format.
        feeds: Images to compare on; iterated up to four times.
        ranges: As for `to_half`.
        goal: Share of pixels that must get the same class.
        progress: Told what was tried and the agreement it gave.
    """
    reference = rows_of(document, feeds, exact=False)
    tail = dict.fromkeys(tail_of(document), "final upsampling: argmax agreement")
    classifier = {classifier_of(document): "classifier: argmax agreement"}

    def measured(what: str, keep: dict[str, str]) -> MeasuredHalf:
        converted, report = to_half(document, kind, ranges, keep)
        share = agreement(reference, rows_of(converted, feeds))
        progress(what, share)
        return MeasuredHalf(converted, report, share, share >= goal)

    cheapest = measured("all", {})
    if cheapest.reached:
        return cheapest
    dearest = measured("upsampling and classifier in fp32", tail | classifier)
    if not dearest.reached:
        return max(cheapest, dearest, key=lambda half: half.agreement)
    between = measured("upsampling in fp32", tail)
    return between if between.reached else dearest
