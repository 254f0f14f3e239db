"""Comparing two files of any kind: checkpoints, ONNX files and engines."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

from rcil.core.errors import RcilError, RunError
from rcil.core.files import sha256_of
from rcil.core.log import Progress
from rcil.model.header import read_header
from rcil.model.metadata import Metadata
from rcil_export.checks.artefact import Artefact, CheckpointArtefact, EngineArtefact, OnnxArtefact, open_artefact
from rcil_export.checks.bisect import bisect as find_layer
from rcil_export.checks.bisect import check_same_network
from rcil_export.checks.description_match import description_result
from rcil_export.checks.layer_alignment import unit_paths
from rcil_export.checks.limits import limits_for
from rcil_export.checks.outputs.compare import compare_outputs
from rcil_export.checks.outputs.report import OutputsReport
from rcil_export.checks.quantisation import layer_reference, quantisation_result
from rcil_export.checks.result import Item, Result
from rcil_export.checks.structure import check_document, structure_result
from rcil_export.classify.export import check_files_of_classifier, is_classifier, scores_result
from rcil_export.graph.onnx_file import read_onnx
from rcil_export.images import common_shape, fit, images_for
from rcil_export.request import MAX_CHECK_IMAGES
from rcil_export.runtime.sessions import SessionError


class CheckReport(NamedTuple):
    """What a comparison of two files found.

    Example:
        >>> report = rcil_export.check("model.safetensors", "deployed/model.onnx", max_images=2)
        >>> report.ok
        True
        >>> [result.key for result in report.results]
        ['structure', 'metadata', 'outputs', 'bisect']
    """

    results: list[Result]
    """Groups of checks, each with its items and what was measured."""
    outputs: OutputsReport | None
    """Comparison of the outputs image by image; None for classifiers and for files that do not run."""

    @property
    def ok(self) -> bool:
        """Whether every check passed."""
        return all(result.ok for result in self.results)


def check_files(
    first: Path,
    second: Path,
    *,
    images: Path | None = None,
    scale: float | None = None,
    limits: dict[str, float] | None = None,
    max_images: int = MAX_CHECK_IMAGES,
    bisect: bool = True,
    progress: Progress = lambda done, total: None,
) -> CheckReport:
    """What differs between two artefacts: structure, description, outputs on images, and where a difference starts.

    Errors in the middle of a network can vanish on the way to its end, so layers are compared too, unless one of the
    files is an engine, which does not show its layers. There is no report of outputs for classifiers of whole images,
    and none for a file that is so broken that it does not run.

    Args:
        first: The reference.
        second: The file that is checked.
        images: A folder; None: generated images.
        scale: Factor by which images are resized, where both files take several sizes; None: as in the training.
        limits: Changes to the default limits, by name.
        max_images: Number of images to use.
        bisect: Also compare layer by layer.
        progress: Receives the number of compared images and their total.
    """
    changes = limits or {}
    limits_for("fp32", "fp32", changes)  # wrong limits are refused before any work
    results: list[Result] = []
    outputs = None
    try:
        if is_classifier(first) or is_classifier(second):
            check_files_of_classifier(first, second)
            results += check_document(second, first, read_header(first).metadata)
            results.append(scores_result(first, second, images=images, limits=changes, max_images=max_images))
            return CheckReport(results, None)
        results += _structures(first, second)
        with open_artefact(first) as a, open_artefact(second) as b:
            hashes = [sha256_of(first)] if isinstance(a, CheckpointArtefact) else []
            results.append(description_result(b.name, b.metadata, a.name, a.metadata, hashes))
            chosen = images_for(images, common_shape(a.shape, b.shape), most=max_images)
            allowed = limits_for(a.precision, b.precision, changes)
            outputs = compare_outputs(a, b, chosen, allowed, scale=scale, progress=progress)
            results.append(outputs.as_result())
            if bisect and not any(isinstance(artefact, EngineArtefact) for artefact in (a, b)):
                results.append(_bisected(a, b, images, allowed.node))
            if isinstance(b, OnnxArtefact) and b.precision == "int8":
                results.append(quantisation_result(a, b, images))
    except (RunError, SessionError) as error:
        if all(result.ok for result in results):
            raise
        item = Item("runs", "Outputs", False, f"not compared: {error.message}", "a file that runs")
        return CheckReport([*results, Result("outputs", f"Outputs of {second}", (item,))], None)
    return CheckReport(results, outputs)


def _structures(first: Path, second: Path) -> list[Result]:
    """The structure of every ONNX file; the second follows the description of the first if that is a checkpoint."""
    checkpoint: Metadata | None = None
    if first.suffix.lower() == ".safetensors":
        checkpoint = read_header(first).metadata
    found = []
    for path in (first, second):
        if path.suffix.lower() == ".onnx":
            file = read_onnx(path)
            described = checkpoint if checkpoint is not None and checkpoint.step == file.metadata.step else None
            found.append(
                structure_result(str(path), file.document, file.metadata, file.interface, checkpoint=described)
            )
    return found


def _bisected(a: Artefact, b: Artefact, images: Path | None, tolerance: float) -> Result:
    try:
        check_same_network(a, b)
        unit_paths(a.metadata.architecture)  # raises for graphs without named layers
        a, _ = layer_reference(a, b)
    except RcilError as error:
        item = Item("layers", "Layer by layer", None, error.message, "two forms of one network")
        return Result("bisect", f"Layers of {b.name} against {a.name}", (item,))
    shape = common_shape(a.shape, b.shape)
    image = fit(next(iter(images_for(images, shape, most=1))), shape)
    return find_layer(a, b, image.pixels, tolerance).as_result()
