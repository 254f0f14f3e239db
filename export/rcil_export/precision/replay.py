"""Repeating a recorded conversion: with the recorded choices, or measured again on the recorded images."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import onnx

from rcil.core.errors import CheckpointError
from rcil_export.graph.interface import Precision
from rcil_export.precision.feeds import recorded_feeds
from rcil_export.precision.half import half_within, to_half_keeping
from rcil_export.precision.int8.cpu import in_form
from rcil_export.precision.int8.quantise import calibrate, quantise
from rcil_export.precision.ranges import measure_ranges
from rcil_export.precision.record import ConversionRecord, package_versions, store_record

Conversion = Callable[[onnx.ModelProto], onnx.ModelProto]
"""An fp32 graph -> the same graph in another precision."""
AGREEMENT_BATCHES = 2
"""Number of batches that decide which nodes half precision leaves in fp32."""


def replay(document: onnx.ModelProto, record: ConversionRecord) -> onnx.ModelProto:
    """Convert an fp32 graph with the recorded choices; nothing is measured.

    The same graph gives the same bytes as the conversion that was recorded. A graph with the same names and other
    weights gets the same ranges and the same nodes in fp32, and its own weights are rounded.

    Args:
        document: In fp32; it is not changed.
        record: From `read_record`.
    """
    if record.precision == "int8":
        assert record.weight_bits is not None and record.form is not None
        _check_ranges(document, record)
        quantised = quantise(document, record.ranges, record.weight_bits)
        converted = in_form(quantised.without(list(record.kept_fp32)), record.form)
    else:
        converted, _ = to_half_keeping(document, record.precision, record.kept_fp32)
    return store_record(converted, record)


def remeasure(document: onnx.ModelProto, record: ConversionRecord, folder: Path | None) -> ConversionRecord:
    """The record of a new measurement on the recorded images, for comparison with the given record.

    The nodes that fp16 and bf16 keep in fp32 are chosen again. The convs that int8 leaves out were judged on other
    images than those that gave the ranges, so they are copied from the given record.

    Args:
        document: The fp32 graph that was converted.
        record: Its images must be in `folder`, unchanged.
        folder: The folder with the images; None if they were generated.
    """
    feeds = recorded_feeds(document, record, folder)
    changes: dict[str, object]
    if record.precision == "int8":
        changes = {"ranges": calibrate(document, feeds, record.calibration)}
    else:
        ranges = measure_ranges(document, feeds) if record.precision == "fp16" else None
        half = half_within(document, record.precision, feeds.first(AGREEMENT_BATCHES), ranges)
        changes = {"kept_fp32": half.kept}
        if ranges is not None:
            changes |= {"magnitudes": ranges.values, "sums": ranges.accumulated}
    return record.model_copy(update={**changes, "versions": package_versions()})


def _check_ranges(document: onnx.ModelProto, record: ConversionRecord) -> None:
    """Raise unless the record has a range of the value that each conv writes."""
    convs = [node.name for node in document.graph.node if node.op_type == "Conv"]
    unknown = [name for name in convs if name not in record.ranges]
    if unknown:
        raise CheckpointError(
            f"the record of the conversion has no range of {unknown[0]}, so it belongs to another graph",
            "Give the checkpoint that the file was exported from.",
        )


@dataclass(frozen=True)
class Converted:
    """A converted graph, and what its precision cost."""

    document: onnx.ModelProto
    notes: dict[str, Any] = field(default_factory=dict)
    """JSON-ready: nodes left in fp32 and why, layers left out of the quantisation, and so on."""
    repeat: dict[Precision, Conversion] = field(default_factory=dict)
    """The same conversion with the same choices, for another fp32 graph with the same names; empty in fp32."""
    record: ConversionRecord | None = None
    """What the conversion depended on, also stored in the document; None in fp32."""


def recorded(document: onnx.ModelProto, record: ConversionRecord, notes: dict[str, Any]) -> Converted:
    """The converted graph with its record stored in it, and the function that repeats the conversion."""
    return Converted(
        store_record(document, record), notes, {record.precision: lambda other: replay(other, record)}, record
    )
