"""What a conversion to fewer bits rested on: measured again, where its images are at hand."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

import numpy as np
import onnx

from rcil.core.errors import RcilError
from rcil_export.precision.record import CONVERSION_KEY, ConversionRecord, GeneratedImages, package_versions
from rcil_export.precision.replay import remeasure
from rcil_export.verify.fields import ABSENT, compare_documents
from rcil_export.verify.findings import Findings
from rcil_export.verify.rebuild import Rebuilt
from rcil_export.verify.report import Difference

RECORD, MEASURED, KEPT = "Record of this conversion", "Same ranges as when measured again", "Layers left in fp32"
TOLERANCE = 0.01
"""Share by which a measured range may differ: other processors add up in other orders."""


def verify_conversion(
    path: Path, delivered: onnx.ModelProto, rebuilt: Rebuilt, calibrate: Path | None, findings: Findings
) -> None:
    """Claims about the record of a converted graph; the graph itself is compared with the record's replay elsewhere."""
    record = rebuilt.record
    if record is None:
        return
    findings.add(path, "record", RECORD, _versions(record), _record_differences(delivered, record))
    if calibrate is None and not isinstance(record.images, GeneratedImages):
        count = len(record.images)
        findings.not_proved(path, "ranges", MEASURED, f"it needs the {count} images of the record: --calibrate")
    else:
        findings.say(f"{path.name}: measuring again, as recorded")
        findings.add(path, "ranges", MEASURED, _images(record), _measured(rebuilt.exact, record, calibrate))
    if record.precision == "int8" and record.kept_fp32:
        why = f"{len(record.kept_fp32)} convs; they were chosen by what they cost on other images"
        findings.not_proved(path, "kept", KEPT, why)


def _versions(record: ConversionRecord) -> str:
    """The recorded versions; where others are installed here, a difference in the graph may come from them."""
    here = package_versions()
    stated = ", ".join(f"{name} {version}" for name, version in record.versions.items())
    others = [f"{name} {here.get(name, ABSENT)}" for name in record.versions if here.get(name) != record.versions[name]]
    return f"{stated}; here {', '.join(others)}" if others else stated


def _images(record: ConversionRecord) -> str:
    if isinstance(record.images, GeneratedImages):
        return f"on {record.images.count} generated images, which say little about a site"
    return f"on {len(record.images)} images"


def _record_differences(delivered: onnx.ModelProto, record: ConversionRecord) -> Iterator[Difference]:
    """The record must be of the version that wrote the file."""
    stated = record.versions.get("rcil", ABSENT)
    if stated != delivered.producer_version:
        yield Difference(f"{CONVERSION_KEY}.versions.rcil", stated, f"{delivered.producer_version}, as the file says")


def _measured(exact: onnx.ModelProto, record: ConversionRecord, calibrate: Path | None) -> Iterator[Difference]:
    """What differs between the record and what is measured now."""
    try:
        again = remeasure(exact, record, calibrate)
    except RcilError as error:
        yield Difference(f"{CONVERSION_KEY}.images", error.message, "the images that it was measured on")
        return
    for field in ("ranges", "magnitudes", "sums"):
        yield from _numbers(f"{CONVERSION_KEY}.{field}", getattr(record, field), getattr(again, field))
    yield from compare_documents(dict(record.kept_fp32), dict(again.kept_fp32), f"{CONVERSION_KEY}.kept_fp32")


def _numbers(
    path: str, stated: Mapping[str, float | tuple[float, float]], measured: Mapping[str, float | tuple[float, float]]
) -> Iterator[Difference]:
    for name in dict.fromkeys([*measured, *stated]):
        found, wanted = stated.get(name), measured.get(name)
        if found is None or wanted is None:
            yield Difference(f"{path}.{name}", *(ABSENT if side is None else str(side) for side in (found, wanted)))
            continue
        first, second = np.atleast_1d(found), np.atleast_1d(wanted)
        if (np.abs(first - second) > TOLERANCE * np.abs(second).max()).any():
            yield Difference(f"{path}.{name}", str(found), f"{wanted}, measured now")
