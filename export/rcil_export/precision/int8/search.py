"""Which convs must stay in fp32 so that int8 costs no more than the user allows, found by measuring."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import onnx

from rcil_export.precision.compare import logits_of
from rcil_export.precision.feeds import Feed
from rcil_export.precision.int8.quantise import Quantised, conv_names


@dataclass(frozen=True)
class Judgement:
    """A measured number and how far it is beyond its limit."""

    limit: str
    """Name of the limit, as for `--limits`."""
    classes: str
    """`all`, `old` or `new`."""
    value: float
    """Percent of pixels with the same class, or points of mIoU lost."""
    excess: float
    """Points beyond the limit; at most 0 passes."""

    def __str__(self) -> str:
        what = (
            f"{self.value:.2f} % same class" if self.limit != "miou_drop" else f"{self.value:.2f} points of mIoU lost"
        )
        return f"{what}, {self.classes} classes"

    def as_document(self) -> dict[str, Any]:
        """JSON-ready."""
        return asdict(self)


Judge = Callable[[onnx.ModelProto], Judgement]
"""Returns the number of a graph that is furthest beyond its limit, or least within."""


@dataclass(frozen=True)
class Step:
    """One choice of convs in fp32, and how good it is."""

    excluded: tuple[str, ...]
    worst: Judgement

    @property
    def excess(self) -> float:
        """Points beyond the limit; at most 0 is good enough."""
        return self.worst.excess


@dataclass(frozen=True)
class SearchResult:
    """The result of a search."""

    document: onnx.ModelProto
    best: Step
    """The choice that the document has; its convs are in the order in which they were put back into fp32."""
    path: tuple[Step, ...]
    """Every choice that was accepted; the first has all convs in int8."""
    reached: bool
    """Whether it is good enough; if not, evaluations or convs ran out and this is the best choice found."""
    evaluations: int


def layer_errors(quantised: Quantised, feeds: Iterable[Feed]) -> dict[str, float]:
    """Error of the logits when one conv alone is in int8, relative to the logits' size; one pass per conv.

    Args:
        quantised: The graph.
        feeds: Few images suffice; iterated once per conv.
    """
    convs = conv_names(quantised.source)
    reference = list(logits_of(quantised.source, feeds, exact=True))
    size = sum(float(np.square(values).sum()) for values in reference) or 1.0
    errors = {}
    for name in convs:
        alone = logits_of(quantised.without([other for other in convs if other != name]), feeds, exact=True)
        error = sum(float(np.square(a - b).sum()) for a, b in zip(alone, reference, strict=True))
        errors[name] = (error / size) ** 0.5
    return errors


def search(
    quantised: Quantised,
    judge: Judge,
    errors: Callable[[], dict[str, float]],
    *,
    candidates: int = 3,
    evaluations: int = 60,
    progress: Callable[[int, Step], None] = lambda evaluations, step: None,
) -> SearchResult:
    """Start with all convs in int8; while that is not good enough, put the conv back into fp32 that helps most.

    Each round tries the `candidates` convs with the largest errors that are still in int8 and keeps the best choice.
    If none of them helps, the conv with the largest error is put back, because it may help together with the next.

    Args:
        quantised: The graph.
        judge: Runs a graph and measures it.
        errors: By conv, from `layer_errors`; called only if all convs in int8 are not good enough.
        candidates: Convs tried in each round.
        evaluations: The largest number of calls of `judge`; there is at least one.
        progress: Receives the number of evaluations and every accepted choice.
    """

    def state(excluded: tuple[str, ...]) -> tuple[Step, onnx.ModelProto]:
        document = quantised.without(excluded)
        return Step(excluded, judge(document)), document

    step, document = best = state(())
    path, used = [step], 1
    progress(used, step)
    size = errors() if step.excess > 0 else {}
    order = sorted(size, key=lambda name: (-size[name], name))
    while step.excess > 0:
        waiting = [name for name in order if name not in step.excluded]
        tried = waiting[: min(candidates, evaluations - used)]
        if not tried:
            break
        found = [state((*step.excluded, name)) for name in tried]
        used += len(tried)
        step, document = min(found, key=lambda pair: pair[0].excess)  # the first, of the largest error, where equal
        best = min(best, (step, document), key=lambda pair: pair[0].excess)
        path.append(step)
        progress(used, step)
    step, document = best
    return SearchResult(document, step, tuple(path), step.excess <= 0, used)
