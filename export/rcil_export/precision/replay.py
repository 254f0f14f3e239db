"""Doing a recorded conversion again: with the recorded choices, or measured anew on the recorded images."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import onnx

from rcil.core.errors import CheckpointError
from rcil.core.files import sha256_of
from rcil.core.reading import DataError, existing_folder
from rcil_export.graph.onnx_file import description_of
from rcil_export.images import GENERATED_VERSION, generated_images, image_files, photographs_of
from rcil_export.precision.feeds import Feeds, feeds_from
from rcil_export.precision.half import to_half_keeping
from rcil_export.precision.half_measured import half_within
from rcil_export.precision.int8.cpu import in_form
from rcil_export.precision.int8.quantise import Calibration, calibrate, quantise
from rcil_export.precision.ranges import measure_ranges
from rcil_export.precision.record import (
    ConversionRecord,
    GeneratedImages,
    RecordedImage,
    package_versions,
    store_record,
)

AGREEMENT_BATCHES = 2
"""Batches that decide what half precision leaves in fp32."""


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
        quantised = quantise(document, Calibration(dict(record.ranges)), record.weight_bits)
        converted = in_form(quantised.without(list(record.kept_fp32)), record.form)
    else:
        converted, _ = to_half_keeping(document, record.precision, record.kept_fp32)
    return store_record(converted, record)


def remeasure(document: onnx.ModelProto, record: ConversionRecord, folder: Path | None) -> ConversionRecord:
    """What the conversion measures on the recorded images now, for comparison with the record.

    The nodes that fp16 and bf16 keep in fp32 are chosen anew. Which convs int8 leaves out was judged on other images
    than those that gave the ranges, so these are taken over.

    Args:
        document: The fp32 graph that was converted.
        record: Its images must be in `folder`, unchanged.
        folder: The folder with the images; None if they were generated.
    """
    feeds = recorded_feeds(document, record, folder)
    changes: dict[str, object]
    if record.precision == "int8":
        changes = {"ranges": calibrate(document, feeds, record.calibration).ranges}
    else:
        ranges = measure_ranges(document, feeds) if record.precision == "fp16" else None
        half = half_within(document, record.precision, feeds.first(AGREEMENT_BATCHES), ranges)
        changes = {"kept_fp32": {node.node: node.reason for node in half.report.kept}}
        if ranges is not None:
            changes |= {"magnitudes": ranges.values, "sums": ranges.accumulated}
    return record.model_copy(update={**changes, "versions": package_versions()})


def recorded_feeds(document: onnx.ModelProto, record: ConversionRecord, folder: Path | None) -> Feeds:
    """The images that the record names, in their order; an error names the first that is missing or changed."""
    metadata, interface = description_of(document)
    if isinstance(record.images, GeneratedImages):
        asked = record.images
        if asked.version != GENERATED_VERSION:
            raise CheckpointError(
                f"the file was measured on generated images of version {asked.version}; this rcil draws version "
                f"{GENERATED_VERSION}",
                f"Use rcil {record.versions.get('rcil', 'of that time')}, or export the file again.",
            )
        images = generated_images(asked.count, asked.size, seed=asked.seed)
        return Feeds(metadata, interface, images, generated=True)
    if folder is None:
        raise DataError(
            f"the file was measured on {len(record.images)} images, and no folder with them was given",
            "Give the folder with --calibrate.",
        )
    root = photographs_of(existing_folder(folder, "Give the folder with the calibration images."))
    return feeds_from(root, _found(root, record.images), metadata, interface)


def _found(root: Path, wanted: Iterable[RecordedImage]) -> list[str]:
    """The names under which the recorded images are below `root`: their own, or those of files with the same bytes."""
    by_hash: dict[str, str] | None = None
    names = []
    for image in wanted:
        path = root / image.name
        inside = not Path(image.name).is_absolute() and ".." not in Path(image.name).parts
        there = inside and path.is_file()
        if there and sha256_of(path) == image.sha256:
            names.append(image.name)
            continue
        if by_hash is None:
            by_hash = {sha256_of(other): other.relative_to(root).as_posix() for other in image_files(root)}
        if image.sha256 not in by_hash:
            what = "has changed since the conversion" if there else "is missing"
            raise DataError(
                f"{path}: this calibration image {what} (sha256 {image.sha256[:12]} was recorded)",
                "Give the folder with the images that the file was calibrated on.",
            )
        names.append(by_hash[image.sha256])
    return names


def _check_ranges(document: onnx.ModelProto, record: ConversionRecord) -> None:
    """Raise unless the record knows the values of the graph, of which every conv writes one."""
    convs = [node.name for node in document.graph.node if node.op_type == "Conv"]
    unknown = [name for name in convs if name not in record.ranges]
    if unknown:
        raise CheckpointError(
            f"the record of the conversion has no range of {unknown[0]}, so it is of another graph",
            "Give the checkpoint that the file was exported from.",
        )
