"""From a network to an ONNX graph of the wanted precision."""

from __future__ import annotations

from pathlib import Path

import onnx

from rcil.checkpoint.metadata import LineageEntry, Metadata
from rcil.files import sha256_of
from rcil.nn import Segmenter, fold
from rcil_export.convert_int8 import convert_int8
from rcil_export.convert_types import Converted, Say
from rcil_export.interface import INPUT_NAME, Interface
from rcil_export.onnx_graph.export import to_onnx
from rcil_export.precision.feeds import Feeds, find_feeds
from rcil_export.precision.half import to_half
from rcil_export.precision.half_measured import half_within
from rcil_export.precision.int8 import CalibrationOptions
from rcil_export.precision.ranges import measure_ranges

MOST_IMAGES = {"fp16": 16, "bf16": 16, "int8": 48}
"""Images to measure on: extremes for fp16, whole histograms for int8; bf16 is only compared, see below."""
AGREEMENT_BATCHES = 2
"""Batches that decide what half precision leaves in fp32."""


def deployed_metadata(metadata: Metadata, source: Path) -> Metadata:
    """The description of the deployed form of the checkpoint `source`."""
    entry = LineageEntry(step=metadata.step, source="export", parent_sha256=sha256_of(source))
    arch = metadata.architecture.replace(rc=None, folded=True, norm="batch")
    return metadata.model_copy(update={"architecture": arch, "lineage": (*metadata.lineage, entry), "cost": None})


def convert(
    model: Segmenter,
    metadata: Metadata,
    interface: Interface,
    *,
    calibrate: Path | None = None,
    miou_drop: float = 1.0,
    calibration: CalibrationOptions | None = None,
    say: Say = lambda text: None,
) -> Converted:
    """Fold, write as ONNX, and bring into `interface.precision`.

    Args:
        model: A network of any form, in evaluation mode.
        metadata: Travels along in the graph.
        interface: What the graph takes and gives.
        calibrate: Images of the site, for every precision but fp32; generated ones without.
        miou_drop: Points of mIoU that int8 may lose on them.
        calibration: How int8 chooses ranges.
        say: Told what is going on.
    """
    folded = model if model.arch.folded else fold(model)[0]
    exact = interface.model_copy(update={"precision": "fp32"})
    document = to_onnx(folded, metadata, exact)
    if interface.precision == "fp32":
        return Converted(document)
    feeds = feeds_for(calibrate, metadata, interface)
    if feeds.generated:
        say("No --calibrate folder: it is measured on generated images, which say little about a site.")
    if interface.precision == "int8":
        return convert_int8(model, document, feeds, calibrate, miou_drop, calibration or CalibrationOptions(), say)
    return _convert_half(document, interface, feeds, say)


def feeds_for(calibrate: Path | None, metadata: Metadata, interface: Interface) -> Feeds:
    """The images that ranges are measured on; their number depends on the precision, which is not fp32."""
    return find_feeds(calibrate, metadata, interface, limit=MOST_IMAGES[interface.precision])


def _convert_half(document: onnx.ModelProto, interface: Interface, feeds: Feeds, say: Say) -> Converted:
    kind = interface.precision
    assert kind in ("fp16", "bf16")
    ranges = measure_ranges(document, feeds) if kind == "fp16" else None
    compared = feeds.first(AGREEMENT_BATCHES)
    half = half_within(
        document,
        kind,
        compared,
        ranges,
        progress=lambda what, share: say(f"{kind}, {what}: {share:.3%} same class"),
    )
    kept = {node.node: node.reason for node in half.report.kept}
    seen = feeds.count if ranges is not None else min(feeds.count, sum(len(feed[INPUT_NAME]) for feed in compared))
    notes = {"agreement": half.agreement, "goal_reached": half.reached, "kept_fp32": kept, "calibrated_on": seen}
    return Converted(half.document, notes, {kind: lambda other: to_half(other, kind, ranges, kept)[0]})
