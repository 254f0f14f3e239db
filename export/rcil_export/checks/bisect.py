"""Finding the layer that makes two artefacts differ: each layer of the second runs on the first one's values."""

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
from rcil.hardware.cpu import give_back_memory
from rcil.model.adopted import AdoptedGraph
from rcil.model.architecture import Architecture
from rcil.model.class_match import ClassMatch, match_classes
from rcil.model.metadata import AnyArchitecture
from rcil_export.checks.artefact import Artefact
from rcil_export.checks.layer_alignment import CLASSIFIER, FULL_SIZE, LayeredNetwork, layered
from rcil_export.checks.limits import limits_for
from rcil_export.checks.result import Item, Result
from rcil_export.images import CheckImage, common_shape, fit
from rcil_export.runtime.sessions import SessionError

MIN_RELATIVE_RANGE = 0.05
"""The range of a map counts as at least this share of its largest value.

A conv in fp32 is rounded by some 2e-7 of its largest value, which in a nearly constant map is much of its range; of
this share it is a fifth of the tolerance for fp32.
"""
TRIM_AFTER = 8
"""Layers after which freed memory is returned to the system."""
Array = NDArray[Any]
Task = TypeVar("Task", bound=Hashable)
Value = TypeVar("Value")


@dataclass(frozen=True)
class LayerError:
    """Errors of one layer, as shares of the range of the first artefact's output."""

    layer: str
    own: float
    """Error given the first artefact's inputs, so that of the layer itself; infinite for another shape."""
    accumulated: float | None
    """Error given the second artefact's own inputs, so with all layers before it; None if not all of them run."""


@dataclass(frozen=True)
class Divergence:
    """The first layer that does not compute what it should."""

    layer: str
    """In the network's terms, for example `backbone.stages.1.0.conv1`."""
    error: float
    """See `LayerError.own`."""
    tolerance: float
    first: str
    """The layer's operations in the first artefact."""
    second: str
    """The layer's operations in the second artefact."""


@dataclass(frozen=True)
class BisectReport:
    """All layers in the order of execution, and the first that exceeds the tolerance."""

    name_a: str
    name_b: str
    tolerance: float
    layers: tuple[LayerError, ...]
    divergence: Divergence | None

    def as_result(self) -> Result:
        """One item: whether every layer is within the tolerance."""
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
            "divergence": None if self.divergence is None else _finite(asdict(self.divergence)),
            "layers": [_finite(asdict(layer)) for layer in self.layers],
        }
        item = Item("layers", "Layer by layer", self.divergence is None, measured, required, detail)
        return Result("bisect", f"Layers of {self.name_b} against {self.name_a}", (item,))


def bisect(a: Artefact, b: Artefact, image: Image, tolerance: float | None = None) -> BisectReport:
    """Run every layer of b on the outputs of the layers of a, and compare its output with that in a.

    Errors do not pass from layer to layer this way, so a wrong layer stands out however deep the network is.

    Args:
        a: The reference: a checkpoint, folded or not, or an ONNX file.
        b: The same network in any of these forms.
        image: RGB [H, W, 3]; resized where a or b does not take its size.
        tolerance: Error that one layer may add; None: the default of the less exact of both precisions.
    """
    check_same_network(a, b)
    limit = limits_for(a.precision, b.precision).node if tolerance is None else tolerance
    pixels = fit(CheckImage("", image), common_shape(a.shape, b.shape)).pixels
    first, second, match = layered(a), layered(b), match_classes(a.metadata.classes, b.metadata.classes)
    _check_rows(a, match)
    common = [layer for layer in first.output_of if layer in second.output_of]
    if not match.complete:
        common = [layer for layer in common if layer != FULL_SIZE]  # b needs class rows that a does not have
    layers = _compared(first, second, pixels, common, match)
    wrong = next((layer for layer in layers if layer.own > limit), None)
    divergence = None
    if wrong is not None:
        divergence = Divergence(wrong.layer, wrong.own, limit, first.text(wrong.layer), second.text(wrong.layer))
    return BisectReport(a.name, b.name, limit, layers, divergence)


def check_same_network(a: Artefact, b: Artefact) -> None:
    """Raise unless both are forms of one network, so that their layers correspond."""
    first, second = (_shape_of(artefact.metadata.architecture) for artefact in (a, b))
    for key in first:
        if first[key] != second.get(key):
            raise RcilError(
                f"{a.name} and {b.name} are different networks: {key} is {first[key]} and {second.get(key)}",
                "Layers can be compared between forms and steps of one network only.",
            )


def _check_rows(a: Artefact, match: ClassMatch) -> None:
    """Raise for other classes in a network of another library, whose classifier has a name of its own."""
    own = isinstance(a.metadata.architecture, Architecture)
    if not own and not match.same_rows:
        raise RcilError(
            "layers of a network of another library are compared between forms with the same classes only",
            "Compare the outputs, or two forms of one step.",
        )


def _shape_of(arch: AnyArchitecture) -> dict[str, object]:
    if isinstance(arch, AdoptedGraph):
        return {"graph": arch.graph_sha256}
    if not isinstance(arch, Architecture):
        return {"factory": arch.factory, "units": arch.units, "classifier": arch.classifier}
    shape: dict[str, object] = arch.model_dump(
        include={"backbone", "width", "head", "head_width", "skip_width", "output_stride"}
    )
    return shape if arch.lite else {**shape, "blocks": arch.stage_blocks}


class _Task(NamedTuple):
    """A layer of the first or of the second network."""

    side: Literal["a", "b"]
    layer: str


def _compared(
    first: LayeredNetwork, second: LayeredNetwork, pixels: Image, common: Sequence[str], match: ClassMatch
) -> tuple[LayerError, ...]:
    """Run both networks layer by layer; an output is kept only until the last layer that reads it has run."""
    errors: dict[str, LayerError] = {}
    given = [layer for layer in common if match.complete or layer not in (CLASSIFIER, FULL_SIZE)]
    of_a, of_b = list(first.output_of), {layer: second.reads(layer, given) for layer in common}
    needs = {_Task("a", layer): [_Task("a", source) for source in first.reads(layer, of_a)] for layer in of_a}
    needs |= {
        _Task("b", layer): [_Task("a", layer)] + [_Task(side, source) for source in sources for side in ("a", "b")]
        for layer, sources in of_b.items()
    }

    def compute(task: _Task, values: Mapping[_Task, Array | None]) -> Array | None:
        layer, reference = task.layer, {t.layer: v for t, v in values.items() if t.side == "a" and v is not None}
        if task.side == "a":
            return first.function(layer, pixels, of_a)(reference)[:1]
        fed = {source: _in_rows_of_b(source, reference[source], match) for source in of_b[layer]}
        own = {source: values[_Task("b", source)] for source in of_b[layer]}
        found, carried = _run_if_possible(second, layer, pixels, given, fed, own)
        accumulated = None if carried is None else _error(layer, reference[layer], carried, match)
        errors[layer] = LayerError(layer, _error(layer, reference[layer], found, match), accumulated)
        return carried

    for done, _ in enumerate(walk(needs, compute, lambda task: task.side == "b"), 1):
        if done % TRIM_AFTER == 0:  # outputs have many sizes, so the heap becomes fragmented
            give_back_memory()
    whole = all(layer.accumulated is not None for layer in errors.values())
    return tuple(errors[layer] if whole else replace(errors[layer], accumulated=None) for layer in common)


def _run_if_possible(
    network: LayeredNetwork,
    layer: str,
    image: Image,
    others: Sequence[str],
    fed: Mapping[str, Array],
    own: Mapping[str, Array | None],
) -> tuple[Array | None, Array | None]:
    """Outputs of a layer given the reference's inputs, and given its own; None if it does not run."""
    errors = (RunError, SessionError, RuntimeError)
    try:
        run = network.function(layer, image, others)
    except errors:
        return None, None
    results: list[Array | None] = []
    for inputs in (fed, own) if own else (fed,):
        known = {source: values for source, values in inputs.items() if values is not None}
        try:
            results.append(run(known) if len(known) == len(inputs) else None)
        except errors:
            results.append(None)
    return results[0], results[-1]


def _in_rows_of_b(layer: str, values: Array, match: ClassMatch) -> Array:
    if layer not in (CLASSIFIER, FULL_SIZE):
        return values
    return values[:, match.old_rows[np.argsort(match.new_rows)]]


def _error(layer: str, reference: Array, found: Array | None, match: ClassMatch) -> float:
    """Largest difference as a share of the reference's range; infinite if the two cannot be compared.

    Args:
        layer: Name of the layer.
        reference: [1, C, H, W].
        found: [N, C, H, W] for N equal images; the worst of them counts.
        match: Which class rows correspond.
    """
    if found is None:
        return float("inf")
    if layer in (CLASSIFIER, FULL_SIZE):
        reference, found = reference[:, match.old_rows], found[:, match.new_rows]
    if reference.shape[1:] != found.shape[1:]:
        return float("inf")
    reference, found = reference.astype(np.float32, copy=False), found.astype(np.float32, copy=False)
    scale = max(np.ptp(reference), MIN_RELATIVE_RANGE * np.abs(reference).max(), 1e-30)
    error = float(np.abs(reference - found).max() / scale)
    return error if np.isfinite(error) else float("inf")


def _finite(document: dict[str, Any]) -> dict[str, Any]:
    return {k: None if isinstance(v, float) and not np.isfinite(v) else v for k, v in document.items()}


def walk(
    needs: Mapping[Task, Sequence[Task]],
    compute: Callable[[Task, Mapping[Task, Value]], Value],
    is_last: Callable[[Task], bool],
) -> Iterator[tuple[Task, Value]]:
    """Compute every task from the tasks it needs, with few values in memory at a time.

    Args:
        needs: All tasks in the preferred order, each with the tasks whose values it reads.
        compute: Computes the value of a task from all values that are still known.
        is_last: Whether a task consumes values; such tasks run as soon as they can.
    """
    rank = {task: index for index, task in enumerate(needs)}
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
