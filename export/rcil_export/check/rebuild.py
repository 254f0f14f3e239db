"""An int8 file made again from its reference, so that what rounding explains is not taken for a mistake."""

from __future__ import annotations

from dataclasses import dataclass

import onnx

from rcil.errors import RcilError
from rcil.nn import fold
from rcil_export.check.artefact import Artefact, CheckpointArtefact, OnnxArtefact
from rcil_export.onnx_file import description_of
from rcil_export.onnx_graph.export import to_onnx
from rcil_export.precision.record import ConversionRecord, read_record
from rcil_export.precision.replay import replay


@dataclass(frozen=True)
class Rebuilt:
    """What an int8 file should be, made from its reference."""

    exact: onnx.ModelProto
    """The fp32 graph of the reference."""
    expected: onnx.ModelProto
    """That graph, converted as the file's record says."""
    record: ConversionRecord


def rebuild(reference: Artefact, candidate: OnnxArtefact) -> Rebuilt | None:
    """The reference converted as the candidate's record says; None if the reference is not in fp32.

    Raises:
        RcilError: The candidate has no record, or one that does not belong to the reference.
    """
    exact = _fp32_graph(reference, candidate)
    if exact is None:
        return None
    record = read_record(candidate.document, candidate.name)
    if record is None or record.precision != "int8":
        raise RcilError(f"{candidate.name} does not record its conversion to int8", "Export it again with rcil-export.")
    return Rebuilt(exact, replay(exact, record), record)


def expected_artefact(reference: Artefact, rebuilt: Rebuilt) -> OnnxArtefact:
    """What the layers of an int8 file are compared with: the error of an honest one is then zero."""
    return OnnxArtefact(f"{reference.name} in int8", rebuilt.expected, *description_of(rebuilt.expected))


def _fp32_graph(reference: Artefact, candidate: OnnxArtefact) -> onnx.ModelProto | None:
    if isinstance(reference, OnnxArtefact):
        return reference.document if reference.precision == "fp32" else None
    if not isinstance(reference, CheckpointArtefact):
        return None
    model = reference.model if reference.model.arch.folded else fold(reference.model)[0]
    interface = candidate.interface.model_copy(update={"precision": "fp32", "folded": True})
    return to_onnx(model, reference.metadata, interface)


def layer_reference(reference: Artefact, candidate: Artefact) -> tuple[Artefact, Rebuilt | None]:
    """What the layers of `candidate` are compared with: the reference itself, or that in int8 for an int8 file.

    Raises:
        RcilError: The layers of the two cannot be compared.
    """
    if "int8" not in (reference.precision, candidate.precision):
        return reference, None
    rebuilt = rebuild(reference, candidate) if isinstance(candidate, OnnxArtefact) else None
    if rebuilt is None or candidate.precision != "int8":
        raise RcilError(
            f"the layers of {candidate.name} cannot be compared with those of {reference.name}",
            "Compare an int8 file with its checkpoint or with the fp32 graph.",
        )
    return expected_artefact(reference, rebuilt), rebuilt
