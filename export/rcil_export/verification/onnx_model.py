"""A delivered ONNX file against a fresh export of its checkpoint, the plain network, and its conversion record."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import onnx
from google.protobuf.message import DecodeError

from rcil import __version__
from rcil.core.errors import RcilError
from rcil_export.certificate.difference import first_difference, weight_differences
from rcil_export.certificate.twin import twin_document
from rcil_export.graph.interface import GraphInterface
from rcil_export.graph.onnx_file import texts_of
from rcil_export.precision.record import CONVERSION_KEY, ConversionRecord, GeneratedImages, package_versions
from rcil_export.precision.replay import remeasure, replay
from rcil_export.verification.graph import end_differences, model_differences, readable, structure_differences
from rcil_export.verification.rebuild import Rebuilt, RecordError, Source
from rcil_export.verification.report import ABSENT, Difference, Findings, compare_documents

REBUILD, TWIN = "Same as a fresh export", "Same as the plain network"
RECORD, MEASURED, KEPT = "Record of this conversion", "Same ranges as when measured again", "Layers left in fp32"
TOLERANCE = 0.01
"""Relative difference of measured ranges that is accepted: other processors add numbers in other orders."""


@dataclass(frozen=True)
class VerifiedGraph:
    """A delivered graph with a readable interface."""

    path: Path
    data: bytes
    """The delivered file if it is right, otherwise the fresh export: the file to build an engine from."""
    document: onnx.ModelProto
    """The same, parsed."""
    interface: GraphInterface


def verify_onnx(path: Path, source: Source, findings: Findings) -> VerifiedGraph | None:
    """Make claims about one ONNX file; returns None if it cannot be rebuilt from what it states."""
    data = findings.read(path)
    try:
        delivered = onnx.load_model_from_string(data)
        interface = source.interface_of(texts_of(delivered), path.name)
    except (DecodeError, RcilError, TypeError, UnicodeError) as error:
        why = error.message if isinstance(error, RcilError) else "not an ONNX file, or damaged"
        findings.wrong(path, "rebuild", REBUILD, why)
        return None
    findings.interfaces[findings.name(path)] = interface.model_dump(mode="json")
    findings.notify(f"{path.name}: exporting {source.path.name} again, {interface.precision}, {interface.shape}")
    try:
        rebuilt = source.rebuilt(delivered, interface)
    except RcilError as error:
        findings.add(path, "rebuild", REBUILD, "", _not_rebuilt(error, delivered, interface, source))
        return None
    graph = _compared(path, data, delivered, rebuilt.document, interface, findings)
    verify_twin(path, delivered, rebuilt, interface, source, findings)
    verify_conversion(path, delivered, rebuilt, source.calibrate, findings)
    return graph


def _compared(
    path: Path,
    data: bytes,
    delivered: onnx.ModelProto,
    expected: onnx.ModelProto,
    interface: GraphInterface,
    findings: Findings,
) -> VerifiedGraph:
    fresh = expected.SerializeToString(deterministic=True)
    if data == fresh:
        findings.add(path, "rebuild", REBUILD, f"the same {len(data):,} bytes", ())
        return VerifiedGraph(path, data, delivered, interface)
    differences = readable(model_differences, delivered, expected)
    text = f"the same graph, weights and description; other bytes{_written_by(delivered)}"
    if findings.add(path, "rebuild", REBUILD, text, differences):
        return VerifiedGraph(path, data, delivered, interface)
    return VerifiedGraph(path, fresh, expected, interface)


def _not_rebuilt(
    error: RcilError, delivered: onnx.ModelProto, interface: GraphInterface, source: Source
) -> Iterator[Difference]:
    """Why the file cannot be rebuilt; inputs and outputs can be compared without the conversion."""
    is_record = isinstance(error, RecordError)
    where = CONVERSION_KEY if is_record else "the file"
    yield Difference(where, error.message, "what an export of this checkpoint states")
    if is_record:
        yield from end_differences(delivered, source.exact(interface))


def _written_by(delivered: onnx.ModelProto) -> str:
    if delivered.producer_version == __version__:
        return ""
    return f", written by {delivered.producer_name} {delivered.producer_version}, and this is {__version__}"


def verify_twin(
    path: Path,
    delivered: onnx.ModelProto,
    rebuilt: Rebuilt,
    interface: GraphInterface,
    source: Source,
    findings: Findings,
) -> None:
    """Make a claim that does not depend on folding."""
    findings.notify(f"{path.name}: computing the weights a second time")
    try:
        plain = twin_document(source.path, source.metadata, interface.model_copy(update={"folded": True}))
        twin = plain if rebuilt.record is None else replay(plain, rebuilt.record)
    except RcilError as error:
        findings.wrong(path, "twin", TWIN, f"the plain network cannot be made: {error.message}")
        return
    findings.add(
        path,
        "twin",
        TWIN,
        "graph and weights, computed a second time without folding",
        readable(twin_differences, delivered, twin),
    )


def twin_differences(delivered: onnx.ModelProto, twin: onnx.ModelProto) -> Iterator[Difference]:
    """All differences from the plain network that exceed the last bit."""
    difference = first_difference(delivered, twin)
    if difference is not None:
        named = structure_differences(delivered, twin)
        yield from named or [Difference("the graph, node by node", difference, "the graph of the plain network")]
        return
    for weights in weight_differences(delivered, twin):
        found = f"{weights.count} of {weights.size} values differ, by up to {weights.relative:.2e} of the largest"
        yield Difference(f"{weights.layer} ({weights.op}): {weights.constant}", found, "those of the checkpoint")


def verify_conversion(
    path: Path, delivered: onnx.ModelProto, rebuilt: Rebuilt, calibrate: Path | None, findings: Findings
) -> None:
    """Make claims about the record of a converted graph; the graph itself is compared with the record's replay."""
    record = rebuilt.record
    if record is None:
        return
    findings.add(path, "record", RECORD, _versions(record), _record_differences(delivered, record))
    if calibrate is None and not isinstance(record.images, GeneratedImages):
        count = len(record.images)
        findings.not_proved(path, "ranges", MEASURED, f"it needs the {count} images of the record: --calibrate")
    else:
        findings.notify(f"{path.name}: measuring again, as recorded")
        findings.add(path, "ranges", MEASURED, _images(record), _measured(rebuilt.exact, record, calibrate))
    if record.precision == "int8" and record.kept_fp32:
        why = f"{len(record.kept_fp32)} convs; they were chosen by what they cost on other images"
        findings.not_proved(path, "kept", KEPT, why)


def _versions(record: ConversionRecord) -> str:
    """The recorded versions, and those installed here if they differ, because they can explain a difference."""
    here = package_versions()
    stated = ", ".join(f"{name} {version}" for name, version in record.versions.items())
    others = [f"{name} {here.get(name, ABSENT)}" for name in record.versions if here.get(name) != record.versions[name]]
    return f"{stated}; here {', '.join(others)}" if others else stated


def _images(record: ConversionRecord) -> str:
    if isinstance(record.images, GeneratedImages):
        return f"on {record.images.count} generated images, which say little about a site"
    return f"on {len(record.images)} images"


def _record_differences(delivered: onnx.ModelProto, record: ConversionRecord) -> Iterator[Difference]:
    """The record must name the version that wrote the file."""
    stated = record.versions.get("rcil", ABSENT)
    if stated != delivered.producer_version:
        yield Difference(f"{CONVERSION_KEY}.versions.rcil", stated, f"{delivered.producer_version}, as the file says")


def _measured(exact: onnx.ModelProto, record: ConversionRecord, calibrate: Path | None) -> Iterator[Difference]:
    """Differences between the record and new measurements."""
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
