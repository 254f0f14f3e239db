"""Which layer makes two artefacts differ: every layer of the second runs on what the first gave its layers to read."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from graphlib import TopologicalSorter
from typing import Any, Literal, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from rcil.core.errors import RcilError, RunError
from rcil.core.images import Image
from rcil.model.architecture import Architecture
from rcil.model.class_match import ClassMatch, match_classes
from rcil_export.checks.artefact import Artefact
from rcil_export.checks.layer_alignment import CLASSIFIER, FULL_SIZE, PlacedNetwork, placed
from rcil_export.checks.limits import limits_for
from rcil_export.checks.result import Item, Result
from rcil_export.images import CheckImage, common_shape, fit
from rcil_export.resources import give_back_memory
from rcil_export.runtime.sessions import SessionError

FLAT = 1e-3
"""A map whose range is below this share of its values is flat, and its range is rounding alone."""
TRIM_AFTER = 8
"""Layers after which freed memory goes back to the system."""
Array = NDArray[Any]
Task = TypeVar("Task", bound=Hashable)
Value = TypeVar("Value")


@dataclass(frozen=True)
class LayerError:
    """One layer. Errors are shares of the range of what the first artefact's layer gives."""

    layer: str
    own: float
    """Given the first artefact's inputs to this layer: what the layer itself does wrong. Infinite if the shape is
    another one."""
    accumulated: float | None
    """With its own inputs, so with everything before it; None if the second artefact does not run as a whole."""


@dataclass(frozen=True)
class Divergence:
    """The first layer that does not compute what it should."""

    layer: str
    """In the network's terms, for example `backbone.stages.1.0.conv1`."""
    error: float
    """Its own, as in `LayerError`."""
    tolerance: float
    first: str
    """What the layer is in the first artefact, and in the second."""
    second: str

    def as_document(self) -> dict[str, Any]:
        """JSON-ready."""
        return asdict(self) | {"error": self.error if np.isfinite(self.error) else None}


@dataclass(frozen=True)
class BisectReport:
    """All layers in the order of execution, and the first that is out of line."""

    name_a: str
    name_b: str
    tolerance: float
    layers: tuple[LayerError, ...]
    divergence: Divergence | None

    def as_result(self) -> Result:
        """One item: whether every layer is in line."""
        required = f"each layer within {self.tolerance:.0e} of the range of its output, given the same inputs"
        if self.divergence is None:
            worst = max(self.layers, key=lambda layer: layer.own)
            measured = f"{len(self.layers)} layers agree; largest error {worst.own:.1e}, at {worst.layer}"
        else:
            found = self.divergence
            wrong_shape = "gives another shape, or numbers that are not finite"
            size = f"is off by {found.error:.1e}" if np.isfinite(found.error) else wrong_shape
            measured = f"{found.layer} {size}; first: {found.first}; second: {found.second}"
        detail = {
            "divergence": None if self.divergence is None else self.divergence.as_document(),
            "layers": [_finite(asdict(layer)) for layer in self.layers],
        }
        item = Item("layers", "Layer by layer", self.divergence is None, measured, required, detail)
        return Result("bisect", f"Layers of {self.name_b} against {self.name_a}", (item,))


def bisect(a: Artefact, b: Artefact, image: Image, tolerance: float | None = None) -> BisectReport:
    """Run every layer of b on what the layers of a gave, and compare what comes out with a.

    Errors do not pass from layer to layer this way, so the one that is wrong stands out however deep the network is.

    Args:
        a: The reference: a checkpoint, folded or not, or an ONNX file.
        b: The same network in any of these forms.
        image: RGB [H, W, 3]; resized where a or b does not take its size.
        tolerance: What a layer may add; None: the default of the less exact of both precisions.
    """
    check_same_network(a, b)
    limit = limits_for(a.precision, b.precision).node if tolerance is None else tolerance
    pixels = fit(CheckImage("", image), common_shape(a.shape, b.shape)).pixels
    first, second, match = placed(a), placed(b), match_classes(a.metadata.classes, b.metadata.classes)
    common = [place for place in first.output_of if place in second.output_of]
    if not match.complete:
        common = [place for place in common if place != FULL_SIZE]  # cannot be fed: b needs rows that a lacks
    layers = _compared(first, second, pixels, common, match)
    wrong = next((layer for layer in layers if layer.own > limit), None)
    divergence = None
    if wrong is not None:
        divergence = Divergence(wrong.layer, wrong.own, limit, first.text(wrong.layer), second.text(wrong.layer))
    return BisectReport(a.name, b.name, limit, layers, divergence)


def check_same_network(a: Artefact, b: Artefact) -> None:
    """Raise unless both are forms of one network, so that their layers belong together."""
    first, second = (_shape_of(artefact.metadata.architecture) for artefact in (a, b))
    for key in first:
        if first[key] != second[key]:
            raise RcilError(
                f"{a.name} and {b.name} are different networks: {key} is {first[key]} and {second[key]}",
                "Layers can be compared between forms and steps of one network only.",
            )


def _shape_of(arch: Architecture) -> dict[str, object]:
    shape: dict[str, object] = arch.model_dump(include={"backbone", "width", "head_width", "output_stride"})
    return shape if arch.backbone == "efficientnet_lite0" else {**shape, "blocks": arch.stage_blocks}


def _compared(
    first: PlacedNetwork, second: PlacedNetwork, pixels: Image, common: Sequence[str], match: ClassMatch
) -> tuple[LayerError, ...]:
    """Both networks, layer by layer; a value is kept only until the last layer that reads it has run."""
    errors: dict[str, LayerError] = {}
    given = [place for place in common if _feeds(place, match)]
    of_a, of_b = list(first.output_of), {place: second.reads(place, given) for place in common}
    needs = {_Task("a", place): [_Task("a", source) for source in first.reads(place, of_a)] for place in of_a}
    needs |= {
        _Task("b", place): [_Task("a", place)] + [_Task(side, source) for source in sources for side in ("a", "b")]
        for place, sources in of_b.items()
    }

    def compute(task: _Task, values: Mapping[_Task, Array | None]) -> Array | None:
        if task.side == "a":
            return first.layer(task.place, pixels, of_a)(_of_first(values))[:1]
        reference = _of_first(values)
        fed = {source: _in_rows_of_b(source, reference[source], match) for source in of_b[task.place]}
        own = {source: values[_Task("b", source)] for source in of_b[task.place]}
        found, carried = _run_if_possible(second, task.place, pixels, given, fed, own)
        errors[task.place] = LayerError(
            task.place,
            _error(task.place, reference[task.place], found, match),
            None if carried is None else _error(task.place, reference[task.place], carried, match),
        )
        return carried

    for done, _ in enumerate(walk(needs, compute, lambda task: task.side == "b"), 1):
        if done % TRIM_AFTER == 0:  # buffers of layers have all sizes, and those of one do not fit into holes of others
            give_back_memory()
    whole = all(layer.accumulated is not None for layer in errors.values())
    return tuple(errors[place] if whole else replace(errors[place], accumulated=None) for place in common)


def _of_first(values: Mapping[_Task, Array | None]) -> dict[str, Array]:
    """What the layers of the first network gave, as far as it is still known."""
    return {task.place: value for task, value in values.items() if task.side == "a" and value is not None}


class _Task(NamedTuple):
    """A layer of the first or of the second network."""

    side: Literal["a", "b"]
    place: str


def _run_if_possible(
    network: PlacedNetwork,
    place: str,
    image: Image,
    others: Sequence[str],
    fed: Mapping[str, Array],
    own: Mapping[str, Array | None],
) -> tuple[Array | None, Array | None]:
    """What a layer gives for the inputs of the reference, and for its own; None where it does not run."""
    errors = (RunError, SessionError, RuntimeError)
    try:
        layer = network.layer(place, image, others)
    except errors:
        return None, None
    results: list[Array | None] = []
    for inputs in (fed, own) if own else (fed,):
        known = {source: values for source, values in inputs.items() if values is not None}
        try:
            results.append(layer(known) if len(known) == len(inputs) else None)
        except errors:
            results.append(None)
    return results[0], results[-1]


def _feeds(place: str, match: ClassMatch) -> bool:
    return match.complete or place not in (CLASSIFIER, FULL_SIZE)


def _in_rows_of_b(place: str, values: Array, match: ClassMatch) -> Array:
    if place not in (CLASSIFIER, FULL_SIZE):
        return values
    return values[:, match.old_rows[np.argsort(match.new_rows)]]


def _error(place: str, reference: Array, found: Array | None, match: ClassMatch) -> float:
    """Largest difference as a share of the reference's range; infinite if it cannot be told.

    Args:
        place: Where.
        reference: [1, C, H, W].
        found: [N, C, H, W], of N equal images, of which the worst counts.
        match: Which class rows belong together.
    """
    if found is None:
        return float("inf")
    if place in (CLASSIFIER, FULL_SIZE):
        reference, found = reference[:, match.old_rows], found[:, match.new_rows]
    if reference.shape[1:] != found.shape[1:]:
        return float("inf")
    reference, found = reference.astype(np.float32, copy=False), found.astype(np.float32, copy=False)
    scale = max(np.ptp(reference), FLAT * np.abs(reference).max(), 1e-30)
    error = float(np.abs(reference - found).max() / scale)
    return error if np.isfinite(error) else float("inf")


def _finite(document: dict[str, Any]) -> dict[str, Any]:
    return {k: None if isinstance(v, float) and not np.isfinite(v) else v for k, v in document.items()}


def walk(
    needs: Mapping[Task, Sequence[Task]],
    compute: Callable[[Task, Mapping[Task, Value]], Value],
    is_last: Callable[[Task], bool],
) -> Iterator[tuple[Task, Value]]:
    """Compute every task from what it needs; values are forgotten once nobody needs them any more.

    Args:
        needs: All tasks, each with those whose values it reads, in the preferred order.
        compute: Gives the value of a task, from all values that are still known.
        is_last: Tasks that consume values; they run as soon as they can.
    """
    rank = {task: at for at, task in enumerate(needs)}
    readers = Counter(source for sources in needs.values() for source in set(sources))
    values: dict[Task, Value] = {}
    sorter = TopologicalSorter(needs)
    sorter.prepare()
    ready: list[Task] = []
    while sorter.is_active():
        ready += sorter.get_ready()
        task = min(ready, key=lambda task: (not is_last(task), rank[task]))
        ready.remove(task)
        value = compute(task, values)
        yield task, value
        if readers[task]:
            values[task] = value
        for source in set(needs[task]):
            readers[source] -= 1
            if not readers[source]:
                del values[source]
        sorter.done(task)
