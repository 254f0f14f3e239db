"""An engine against the ONNX file it was built from, where a GPU can run it."""

from __future__ import annotations

from pathlib import Path

from rcil.core.errors import MissingDependencyError
from rcil_export.checks.artefact import open_artefact
from rcil_export.checks.limits import limits_for
from rcil_export.checks.outputs.compare import compare_outputs
from rcil_export.checks.outputs.report import OutputsReport
from rcil_export.checks.result import Item, Result
from rcil_export.engine.errors import EngineError
from rcil_export.engine.gpu import find_gpus
from rcil_export.engine.sidecar import EngineSidecar
from rcil_export.images import CheckImages

KEY = "engine_outputs"


def check_engine(
    graph: Path, engine: Path, sidecar: EngineSidecar, images: CheckImages, changes: dict[str, float]
) -> tuple[Result, tuple[OutputsReport, ...]]:
    """Compare both on images; where that is not possible here, one item says why.

    Args:
        graph: The ONNX file.
        engine: Built from it.
        sidecar: The engine's.
        images: To compare on.
        changes: The user's limits; the others are those of the precision.
    """
    reason = _reason_not_to_run(sidecar)
    passed = None
    if reason is None:
        try:
            report = _compare(graph, engine, sidecar, images, changes)
        except MissingDependencyError as error:
            reason = error.message
        except EngineError as error:
            reason, passed = error.message, False
        else:
            found = report.as_result()
            return Result(KEY, found.title, found.items), (report,)
    item = Item("engine", "Outputs of the engine", passed, f"not compared: {reason}", f"those of {graph.name}")
    return Result(KEY, f"Outputs of {engine.name} against {graph.name}", (item,)), ()


def _reason_not_to_run(sidecar: EngineSidecar) -> str | None:
    gpus = find_gpus()
    if not gpus:
        return "there is no GPU here; run `rcil-export check` on the device"
    if gpus[0].capability not in sidecar.gpus:
        return f"the GPU of this machine is {gpus[0].capability}, and the engine is for {', '.join(sidecar.gpus)}"
    return None


def _compare(
    graph: Path, engine: Path, sidecar: EngineSidecar, images: CheckImages, changes: dict[str, float]
) -> OutputsReport:
    with open_artefact(graph) as first, open_artefact(engine) as second:
        first.name, second.name = graph.name, engine.name
        limits = limits_for(first.precision, sidecar.precision, changes)
        return compare_outputs(first, second, images, limits)
