"""A delivered graph against the plain network, whose weights are computed without folding."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import onnx

from rcil.core.errors import RcilError
from rcil_export.certificate.difference import first_difference, weight_differences
from rcil_export.certificate.twin import twin_document
from rcil_export.precision.replay import replay
from rcil_export.verify.findings import Findings
from rcil_export.verify.graph import readable, structure_differences
from rcil_export.verify.rebuild import AnyInterface, Rebuilt, Source
from rcil_export.verify.report import Difference

TWIN = "Same as the plain network"
PROVED = "graph and weights, computed a second time without folding"


def verify_twin(
    path: Path,
    delivered: onnx.ModelProto,
    rebuilt: Rebuilt,
    interface: AnyInterface,
    source: Source,
    findings: Findings,
) -> None:
    """A claim that holds whatever the fold of this program does."""
    findings.say(f"{path.name}: computing the weights a second time")
    try:
        plain = twin_document(source.path, source.metadata, interface.model_copy(update={"folded": True}))
        twin = plain if rebuilt.record is None else replay(plain, rebuilt.record)
    except RcilError as error:
        findings.wrong(path, "twin", TWIN, f"the plain network cannot be made: {error.message}")
        return
    findings.add(path, "twin", TWIN, PROVED, readable(twin_differences, delivered, twin))


def twin_differences(delivered: onnx.ModelProto, twin: onnx.ModelProto) -> Iterator[Difference]:
    """What differs by more than the last bit."""
    difference = first_difference(delivered, twin)
    if difference is not None:
        named = structure_differences(delivered, twin)
        yield from named or [Difference("the graph, node by node", difference, "the graph of the plain network")]
        return
    for weights in weight_differences(delivered, twin):
        found = f"{weights.count} of {weights.size} values differ, by up to {weights.relative:.2e} of the largest"
        yield Difference(f"{weights.layer} ({weights.op}): {weights.constant}", found, "those of the checkpoint")
