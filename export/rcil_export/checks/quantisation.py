"""Whether an int8 graph is its reference, correctly rounded: weights, scales, zero points and biases.

The file is compared with the folded weights of the reference, and with the graph that its record describes, made again
from the reference (`replay`). If there are images, the ranges of values are measured again on them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import numpy_helper

from rcil.core.errors import CheckpointError, RcilError
from rcil.core.reading import DataError
from rcil.nn import fold
from rcil_export.checks.artefact import Artefact, CheckpointArtefact, OnnxArtefact
from rcil_export.checks.result import Item, Result
from rcil_export.graph.export import to_onnx
from rcil_export.graph.nodes import constants_of
from rcil_export.graph.onnx_file import description_of
from rcil_export.precision.feeds import find_feeds
from rcil_export.precision.int8.quantise import calibrate
from rcil_export.precision.int8.weights import weight_scales
from rcil_export.precision.record import ConversionRecord, Span, read_record
from rcil_export.precision.replay import remeasure, replay

Array = NDArray[Any]
MAX_STEP_ERROR = 1.001
"""Largest error of a weight, in quantisation steps. Most weights are rounded to the nearest step, some to the next one;
see `round_weights`."""
MAX_SUM_ERROR = 0.51
"""Largest sum of the errors of a channel, in steps. Folding on another machine changes the sum slightly."""
SAME = 1e-4
"""Relative difference of scales and biases that come from the same numbers."""
SAME_IMAGES = 1.02
"""Ratio of ranges that two machines measure on the same images; a bin of the histogram is smaller."""
OTHER_IMAGES = {"percentile": 1.4, "entropy": 2.5}
"""Ratio of ranges that were measured on other images of the same site, by the method of calibration. Below the square
root of 2, a scale that is wrong by a factor of 2 fails whatever the images say; entropy is too unstable for that. See
docs/export.md for what was measured."""
MAX_RANGE_IMAGES = 16
"""Images to measure ranges on again, at most."""
MIN_RANGE_IMAGES = 3
"""Other images to measure ranges on, at least: a single one was off by a factor of 1.47."""


@dataclass(frozen=True)
class Rebuilt:
    """An int8 file as it should be, made from its reference."""

    exact: onnx.ModelProto
    """The fp32 graph of the reference."""
    expected: onnx.ModelProto
    """That graph, converted as the file's record says."""
    record: ConversionRecord


def rebuild(reference: Artefact, candidate: OnnxArtefact) -> Rebuilt | None:
    """Convert the reference as the candidate's record says; None if the reference is not in fp32.

    Raises:
        RcilError: The candidate has no record, or one that does not belong to the reference.
    """
    exact = _fp32_graph(reference, candidate)
    if exact is None:
        return None
    record = read_record(candidate.document, candidate.name)
    if record is None or record.precision != "int8":
        raise RcilError(f"{candidate.name} does not record its conversion to int8", "Export it again with rcil-export.")
    return Rebuilt(exact, replay(exact, record), record)


def _fp32_graph(reference: Artefact, candidate: OnnxArtefact) -> onnx.ModelProto | None:
    if isinstance(reference, OnnxArtefact):
        return reference.document if reference.precision == "fp32" else None
    if not isinstance(reference, CheckpointArtefact):
        return None
    model = reference.model if reference.model.arch.folded else fold(reference.model)[0]
    interface = candidate.interface.model_copy(update={"precision": "fp32", "folded": True})
    return to_onnx(model, reference.metadata, interface)


def layer_reference(reference: Artefact, candidate: Artefact) -> tuple[Artefact, Rebuilt | None]:
    """The artefact that the layers of `candidate` are compared with: the reference, or its int8 form for an int8 file.

    An honest int8 file then has no error at all.

    Raises:
        RcilError: The layers of the two cannot be compared.
    """
    if "int8" not in (reference.precision, candidate.precision):
        return reference, None
    rebuilt = rebuild(reference, candidate) if isinstance(candidate, OnnxArtefact) else None
    if rebuilt is None or candidate.precision != "int8":
        raise RcilError(
            f"the layers of {candidate.name} cannot be compared with those of {reference.name}",
            "Compare an int8 file with its checkpoint or with the fp32 graph.",
        )
    rounded = OnnxArtefact(f"{reference.name} in int8", rebuilt.expected, *description_of(rebuilt.expected))
    return rounded, rebuilt


@dataclass(frozen=True)
class Rounding:
    """One Q or DQ node with its numbers."""

    scale: Array
    zero_point: Array
    steps: Array | None
    """The stored kernel int8 [O, I, H, W]; None for a value of the network."""


def quantisation_result(
    reference: Artefact,
    candidate: OnnxArtefact,
    images: Path | None,
    *,
    measured: Mapping[str, Span] | None = None,
    rebuilt: Rebuilt | None = None,
) -> Result:
    """Compare every rounded number of an int8 file with the one that follows from the reference.

    Args:
        reference: A checkpoint or an fp32 graph.
        candidate: The int8 file.
        images: Folder of site images to measure ranges on; best those that the file was calibrated on.
        measured: The ranges, if they have just been measured.
        rebuilt: The result of `rebuild`, if it has been called before.
    """
    title = f"Rounding of {candidate.name}"
    try:
        rebuilt = rebuilt or rebuild(reference, candidate)
    except RcilError as error:
        item = Item("int8_record", "Record of the conversion", False, error.message, "a record of this network")
        return Result("quantisation", title, (item,))
    if rebuilt is None:
        text = f"not compared: {reference.name} is not in fp32"
        return Result("quantisation", title, (Item("int8_record", "Record", None, text, "an fp32 reference"),))
    found, expected = roundings(candidate.document), roundings(rebuilt.expected)
    structure = _structure_item(found, expected)
    items = [structure]
    if structure.passed:
        weights = folded_weights(rebuilt.exact)
        items += [
            _weight_item(found, weights),
            _weight_scale_item(found, weights, rebuilt.record),
            _zero_point_item(found, expected),
            _bias_item(candidate.document, rebuilt.expected),
            _scale_item(found, expected),
            _range_item(rebuilt, images, measured),
        ]
    return Result("quantisation", title, tuple(items))


def roundings(document: onnx.ModelProto) -> dict[str, Rounding]:
    """Every Q and DQ node by name."""
    constants = constants_of(document)

    def values(name: str) -> Array:
        return numpy_helper.to_array(constants[name]) if name in constants else np.array(np.nan)

    return {
        node.name: Rounding(
            values(node.input[1]),
            values(node.input[2]) if len(node.input) > 2 else np.array(0, np.uint8),
            numpy_helper.to_array(constants[node.input[0]]) if node.input[0] in constants else None,
        )
        for node in document.graph.node
        if node.op_type in ("QuantizeLinear", "DequantizeLinear")
    }


def folded_weights(exact: onnx.ModelProto) -> dict[str, Array]:
    """The fp32 kernel of every conv [O, I, H, W], by the name of the DQ node that an int8 graph has for it."""
    constants = constants_of(exact)
    return {
        f"{node.input[1]}_DequantizeLinear": numpy_helper.to_array(constants[node.input[1]])
        for node in exact.graph.node
        if node.op_type == "Conv"
    }


def _layer(node: str) -> str:
    """The layer or value that a Q or DQ node belongs to."""
    for suffix in ("_QuantizeLinear", "_DequantizeLinear", ".quantised", ".values"):
        node = node.removesuffix(suffix)
    return node.removesuffix(".weight")


def _structure_item(found: Mapping[str, Rounding], expected: Mapping[str, Rounding]) -> Item:
    title, required = "What is in int8", "the convs and values that the record names"
    for first, second, text in ((expected, found, "is not rounded here"), (found, expected, "is rounded here alone")):
        missing = [name for name in first if name not in second]
        if missing:
            return Item("int8_structure", title, False, f"{_layer(missing[0])} {text}", required)
    for name, rounding in expected.items():
        other = found[name]
        kinds = [None if r.steps is None else (r.steps.dtype, r.steps.shape) for r in (rounding, other)]
        if kinds[0] != kinds[1] or rounding.scale.shape != other.scale.shape:
            return Item("int8_structure", title, False, f"{_layer(name)} has another type or shape", required)
    convs = sum(rounding.steps is not None for rounding in expected.values())
    values = (len(expected) - convs) // 2
    return Item("int8_structure", title, True, f"the weights of {convs} convs and {values} values", required)


def _worst(errors: Iterator[tuple[str, float]]) -> tuple[str, float]:
    """The layer with the largest error; NaN counts as infinite."""
    finite = ((name, error if np.isfinite(error) else float("inf")) for name, error in errors)
    return max(finite, key=lambda pair: pair[1], default=("nothing", 0.0))


def _weight_item(found: Mapping[str, Rounding], weights: Mapping[str, Array]) -> Item:
    """Errors of the weights, and their sum over each channel, which shifts the channel's output."""

    def errors(measure: Callable[[Array], Array]) -> Iterator[tuple[str, float]]:
        for name, rounding in found.items():
            if rounding.steps is not None:
                scale = rounding.scale.astype(np.float64).reshape(-1, 1, 1, 1)
                rows = (rounding.steps - weights[name] / scale).reshape(len(scale), -1)
                yield _layer(name), float(np.abs(measure(rows)).max())

    layer, largest = _worst(errors(lambda rows: rows))
    sum_layer, total = _worst(errors(lambda rows: rows.sum(axis=1)))
    return Item(
        "int8_weights",
        "Weights",
        largest <= MAX_STEP_ERROR and total <= MAX_SUM_ERROR,
        f"at most {largest:.3f} steps from the folded weights, at {layer}; "
        f"the errors of a channel sum to at most {total:.3f} steps, at {sum_layer}",
        "within one step; the sum of a channel within half a step, so that its mean error is near zero",
        {"steps": largest, "layer": layer, "sum": total, "sum_layer": sum_layer},
    )


def _relative_item(
    key: str, title: str, errors: Iterator[tuple[str, float]], reference: str, required: str, **detail: Any
) -> Item:
    """Whether the relative errors of all layers are within `SAME`."""
    layer, largest = _worst(errors)
    measured = f"off by at most {largest:.1e}{reference}, at {layer}"
    detail = {"relative": None if np.isinf(largest) else largest, "layer": layer, **detail}
    return Item(key, title, largest <= SAME, measured, required, detail)


def _weight_scale_item(found: Mapping[str, Rounding], weights: Mapping[str, Array], record: ConversionRecord) -> Item:
    bits = record.weight_bits
    assert bits is not None
    errors = (
        (_layer(name), float(np.abs(rounding.scale / weight_scales(weights[name], bits) - 1).max()))
        for name, rounding in found.items()
        if rounding.steps is not None
    )
    required = f"within {SAME:.0e}: the largest weight of a channel takes all of {bits} bits"
    reference = " of what the folded weights imply"
    return _relative_item("int8_weight_scales", "Scales of the weights", errors, reference, required, weight_bits=bits)


def _zero_point_item(found: Mapping[str, Rounding], expected: Mapping[str, Rounding]) -> Item:
    key, title = "int8_zero_points", "Zero points"
    required = "int8 at 0; in the form for CPUs values are uint8 at 128, and at 0 behind a ReLU"
    for name, rounding in expected.items():
        here, right = found[name].zero_point, rounding.zero_point
        if here.dtype != right.dtype or not np.array_equal(here, right):
            measured = f"{_layer(name)} has {here.dtype} {here.flat[0]} instead of {right.dtype} {right.flat[0]}"
            return Item(key, title, False, measured, required, {"layer": _layer(name)})
    return Item(key, title, True, f"all {len(expected)} are right", required)


def _bias_item(document: onnx.ModelProto, expected: onnx.ModelProto) -> Item:
    """Biases, and the kernels of the convs that stay in fp32."""
    ours, theirs = _float_inputs(document), _float_inputs(expected)

    def errors() -> Iterator[tuple[str, float]]:
        for key in dict.fromkeys([*theirs, *ours]):
            here, right = ours.get(key), theirs.get(key)
            if here is None or right is None or here.shape != right.shape or here.dtype != np.float32:
                yield key[0], float("inf")
            else:
                yield key[0], float(np.abs(here - right).max() / max(float(np.abs(right).max()), 1e-30))

    required = f"fp32, within {SAME:.0e} of the folded ones"
    return _relative_item("int8_bias", "Biases, and weights left in fp32", errors(), "", required)


def _float_inputs(document: onnx.ModelProto) -> dict[tuple[str, int], Array]:
    """The constants that a conv reads directly, by conv and input."""
    constants = constants_of(document)
    return {
        (node.name, at): numpy_helper.to_array(constants[name])
        for node in document.graph.node
        if node.op_type == "Conv"
        for at, name in enumerate(node.input)
        if name in constants
    }


def _scale_item(found: Mapping[str, Rounding], expected: Mapping[str, Rounding]) -> Item:
    errors = (
        (_layer(name), float(np.abs(found[name].scale / rounding.scale - 1).max()))
        for name, rounding in expected.items()
        if rounding.steps is None
    )
    reference = " of what the recorded ranges imply"
    return _relative_item("int8_scales", "Scales of the values", errors, reference, f"within {SAME:.0e}")


def _range_item(rebuilt: Rebuilt, images: Path | None, measured: Mapping[str, Span] | None) -> Item:
    """Whether the recorded ranges are those of the images."""
    title, record = "Ranges of the values", rebuilt.record
    used = {
        node.input[1].removesuffix(".from_zero").removesuffix("_scale")
        for node in rebuilt.expected.graph.node
        if node.op_type == "QuantizeLinear"
    }
    if measured is not None:
        where, limit = "the images of this conversion", SAME_IMAGES
    else:
        try:
            measured, where, limit = _measure(rebuilt, images)
        except (DataError, CheckpointError) as error:
            text = f"not measured again: {error.message}"
            return Item("int8_ranges", title, None, text, "the images that the file was calibrated on")

    def ratios() -> Iterator[tuple[str, float]]:
        for name in sorted(used):
            ratio = _amplitude(record.ranges[name]) / max(_amplitude(measured[name]), 1e-30)
            yield name, max(ratio, 1 / max(ratio, 1e-30))

    layer, largest = _worst(ratios())
    return Item(
        "int8_ranges",
        title,
        largest <= limit,
        f"up to {largest:.3f} times wider or narrower than on {where}, at {layer}",
        f"within a factor of {limit:g}",
        {"factor": None if np.isinf(largest) else largest, "layer": layer, "limit": limit},
    )


def _measure(rebuilt: Rebuilt, images: Path | None) -> tuple[dict[str, Span], str, float]:
    """Ranges, the images they were measured on, and the factor by which recorded ranges may differ."""
    record = rebuilt.record
    try:
        return remeasure(rebuilt.exact, record, images).ranges, "the images that gave them", SAME_IMAGES
    except DataError:
        if images is None:
            raise
    metadata, interface = description_of(rebuilt.exact)
    feeds = find_feeds(images, metadata, interface, limit=MAX_RANGE_IMAGES)
    if feeds.count < MIN_RANGE_IMAGES:
        raise DataError(
            f"{images} holds {feeds.count} images, not those of the conversion", f"Give at least {MIN_RANGE_IMAGES}."
        )
    ranges = calibrate(rebuilt.exact, feeds, record.calibration)
    assert record.calibration is not None
    return ranges, f"{feeds.count} other images", OTHER_IMAGES[record.calibration.method]


def _amplitude(span: Span) -> float:
    return max(abs(span[0]), abs(span[1]))
