"""What a conversion gives."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import onnx

from rcil.errors import RcilError
from rcil_export.interface import Precision
from rcil_export.precision.record import ConversionRecord, store_record
from rcil_export.precision.replay import replay

Say = Callable[[str], None]
Conversion = Callable[[onnx.ModelProto], onnx.ModelProto]
"""An fp32 graph -> the same graph in another precision."""


class PrecisionError(RcilError):
    """A precision that costs more than the user allows."""

    exit_code = 5


@dataclass(frozen=True)
class Converted:
    """A graph, and what its precision cost."""

    document: onnx.ModelProto
    notes: dict[str, Any] = field(default_factory=dict)
    """JSON-ready: nodes left in fp32 and why, layers left out of the quantisation, and so on."""
    repeat: dict[Precision, Conversion] = field(default_factory=dict)
    """The same conversion with the same choices, for another fp32 graph with the same names; for every precision but
    fp32."""
    record: ConversionRecord | None = None
    """What the conversion depended on, as the document says too; None in fp32."""


def recorded(document: onnx.ModelProto, record: ConversionRecord, notes: dict[str, Any]) -> Converted:
    """A converted graph that says what its conversion depended on, and how to repeat it."""
    return Converted(
        store_record(document, record), notes, {record.precision: lambda other: replay(other, record)}, record
    )
