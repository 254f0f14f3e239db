"""From a network to an ONNX graph of the wanted precision."""

from __future__ import annotations

from pathlib import Path

import onnx

from rcil.core.files import sha256_of
from rcil.model.metadata import LineageEntry, Metadata
from rcil.nn import Segmenter, fold
from rcil_export.check.limits import Limits, limits_for
from rcil_export.graph.export import to_onnx
from rcil_export.graph.interface import INPUT_NAME, Interface
from rcil_export.precision.converted import Converted, Say, recorded
from rcil_export.precision.feeds import Feeds, find_feeds
from rcil_export.precision.half_measured import half_within
from rcil_export.precision.int8.convert import Vnni, convert_int8
from rcil_export.precision.int8.quantise import CalibrationOptions
from rcil_export.precision.int8.split import split_images
from rcil_export.precision.ranges import measure_ranges
from rcil_export.precision.record import ConversionRecord, package_versions, recorded_images
from rcil_export.precision.replay import AGREEMENT_BATCHES

MAX_HALF_IMAGES = 16
"""Images to measure extremes on for fp16; bf16 is only compared. int8 has numbers of its own, see `split`."""


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
    images: Path | None = None,
    limits: Limits | None = None,
    calibration: CalibrationOptions | None = None,
    vnni: Vnni = "auto",
    say: Say = lambda text: None,
) -> Converted:
    """Fold, write as ONNX, and bring into `interface.precision`.

    Args:
        model: A network of any form, in evaluation mode.
        metadata: Travels along in the graph.
        interface: What the graph takes and gives.
        calibrate: Images of the site, for every precision but fp32; generated ones without.
        images: Images to judge int8 on; a part of `calibrate` without.
        limits: What int8 may lose there; None: the defaults.
        calibration: How int8 chooses ranges.
        vnni: Whether the CPU that will run an int8 graph has VNNI; `auto`: as this machine.
        say: Told what is going on.
    """
    exact = interface.model_copy(update={"precision": "fp32"})
    document = to_onnx(model if model.arch.folded else fold(model)[0], metadata, exact)
    if interface.precision == "fp32":
        return Converted(document)
    if calibrate is None:
        say("No --calibrate folder: it is measured on generated images, which say little about a site.")
    if interface.precision == "int8":
        return convert_int8(
            model,
            document,
            split_images(calibrate, images, metadata, interface),
            limits or limits_for("fp32", "int8"),
            calibration or CalibrationOptions(),
            vnni,
            say,
        )
    feeds = find_feeds(calibrate, metadata, interface, limit=MAX_HALF_IMAGES)
    return _convert_half(document, interface, feeds, say)


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
    record = ConversionRecord(
        precision=kind,
        kept_fp32=kept,
        magnitudes={} if ranges is None else ranges.values,
        sums={} if ranges is None else ranges.accumulated,
        images=recorded_images(feeds),
        versions=package_versions(),
    )
    seen = feeds.count if ranges is not None else min(feeds.count, sum(len(feed[INPUT_NAME]) for feed in compared))
    notes = {"agreement": half.agreement, "goal_reached": half.reached, "kept_fp32": kept, "calibrated_on": seen}
    return recorded(half.document, record, notes)
