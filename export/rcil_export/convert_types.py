"""What a conversion gives."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import onnx

from rcil.errors import RcilError
from rcil_export.interface import Precision

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
    """The same conversion with the same choices, for another graph with the same names."""
