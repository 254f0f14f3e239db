"""A delivered ONNX file against a fresh export of its checkpoint."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import onnx
from google.protobuf.message import DecodeError

from rcil import __version__
from rcil.core.errors import RcilError
from rcil_export.graph.onnx_file import texts_of
from rcil_export.precision.record import CONVERSION_KEY
from rcil_export.verify.conversion import verify_conversion
from rcil_export.verify.findings import Findings
from rcil_export.verify.graph import end_differences, model_differences, readable
from rcil_export.verify.rebuild import AnyInterface, RecordError, Source
from rcil_export.verify.report import Difference
from rcil_export.verify.twin import verify_twin

REBUILD = "Same as a fresh export"


@dataclass(frozen=True)
class VerifiedGraph:
    """A delivered graph whose interface could be read."""

    path: Path
    data: bytes
    """The delivered file if it is right, else the fresh export: what an engine has to be built from."""
    document: onnx.ModelProto
    """The same, parsed."""
    interface: AnyInterface


def verify_onnx(path: Path, source: Source, findings: Findings) -> VerifiedGraph | None:
    """Claims about one ONNX file; None where it does not say what it is, so that nothing can be rebuilt."""
    data = findings.read(path)
    try:
        delivered = onnx.load_model_from_string(data)
        interface = source.interface_of(texts_of(delivered), path.name)
    except (DecodeError, RcilError, TypeError, UnicodeError) as error:
        why = error.message if isinstance(error, RcilError) else "not an ONNX file, or damaged"
        findings.wrong(path, "rebuild", REBUILD, why)
        return None
    findings.interfaces[findings.name(path)] = interface.model_dump(mode="json")
    findings.say(f"{path.name}: exporting {source.path.name} again, {interface.precision}, {interface.shape}")
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
    interface: AnyInterface,
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
    error: RcilError, delivered: onnx.ModelProto, interface: AnyInterface, source: Source
) -> Iterator[Difference]:
    """Why there is nothing to compare with; inputs and outputs can be compared without the conversion."""
    is_record = isinstance(error, RecordError)
    where = CONVERSION_KEY if is_record else "the file"
    yield Difference(where, error.message, "what an export of this checkpoint states")
    if is_record:
        yield from end_differences(delivered, source.exact(interface))


def _written_by(delivered: onnx.ModelProto) -> str:
    if delivered.producer_version == __version__:
        return ""
    return f", written by {delivered.producer_name} {delivered.producer_version}, and this is {__version__}"
