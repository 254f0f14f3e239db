"""Comparing two files of any kind."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from rcil.core.errors import RcilError, RunError
from rcil.core.files import sha256_of
from rcil.model.header import read_header
from rcil.model.metadata import Metadata
from rcil_export.checks.artefact import (
    Artefact,
    CheckpointArtefact,
    EngineArtefact,
    OnnxArtefact,
    open_artefact,
)
from rcil_export.checks.layers.bisect import bisect as find_layer
from rcil_export.checks.layers.bisect import check_same_network
from rcil_export.checks.layers.quantisation import quantisation_result
from rcil_export.checks.layers.rebuild import layer_reference
from rcil_export.checks.limits import limits_for, parse_limits
from rcil_export.checks.outputs.compare import compare_outputs
from rcil_export.checks.outputs.report import OutputsReport
from rcil_export.checks.result import Item, Result
from rcil_export.checks.structure.check import structure_result
from rcil_export.checks.structure.description_match import description_result
from rcil_export.classify.check import broken, check_classifier, is_classifier
from rcil_export.graph.onnx_file import read_onnx
from rcil_export.images import common_shape, fit, images_for
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
    limits: str = "",
    most: int = 64,
    bisect: bool = True,
    progress: Callable[[int, int], None] = lambda done, total: None,
) -> CheckReport:
    """What differs between two artefacts: structure, description, outputs on images, and where a difference starts.

    Errors in the middle of a network can vanish on the way to its end, so layers are compared too, unless one of the
    two is an engine, whose layers nobody sees. There is no report of outputs for classifiers of whole images, and for a
    file that is so broken that it does not run.

    Args:
        first: The reference.
        second: What is checked.
        images: A folder; generated images without.
        limits: Changes to the defaults, as text.
        most: Images to use.
        bisect: Also compare layer by layer.
        progress: Told how many of how many images are done.
    """
    changes = parse_limits(limits)
    if is_classifier(first) or is_classifier(second):
        return CheckReport(check_classifier(first, second, images=images, changes=changes, most=most), None)
    results = _structures(first, second)
    try:
        with open_artefact(first) as a, open_artefact(second) as b:
            results.append(described(a, b, first))
            chosen = images_for(images, common_shape(a.shape, b.shape), most=most)
            allowed = limits_for(a.precision, b.precision, changes)
            outputs = compare_outputs(a, b, chosen, allowed, progress=progress)
            results.append(outputs.as_result())
            if bisect and not any(isinstance(artefact, EngineArtefact) for artefact in (a, b)):
                results.append(_bisected(a, b, images, allowed.node))
            if isinstance(b, OnnxArtefact) and b.precision == "int8":
                results.append(quantisation_result(a, b, images))
    except (RunError, SessionError) as error:
        if all(result.ok for result in results):
            raise
        results.append(broken(second, error))
        return CheckReport(results, None)
    return CheckReport(results, outputs)


def described(a: Artefact, b: Artefact, reference: Path) -> Result:
    """What b says about itself against what a says; `reference` is the file of a."""
    hashes = [sha256_of(reference)] if isinstance(a, CheckpointArtefact) else []
    return description_result(b.name, b.metadata, a.name, a.metadata, hashes)


def _structures(first: Path, second: Path) -> list[Result]:
    """That of every ONNX file, the second by the description of the first if that is a checkpoint."""
    checkpoint: Metadata | None = None
    if first.suffix.lower() == ".safetensors":
        checkpoint = read_header(first).metadata
    found = []
    for path in (first, second):
        if path.suffix.lower() == ".onnx":
            file = read_onnx(path)
            same_step = checkpoint is not None and checkpoint.step == file.metadata.step
            found.append(
                structure_result(
                    str(path),
                    file.document,
                    file.metadata,
                    file.interface,
                    checkpoint=checkpoint if same_step else None,
                )
            )
    return found


def _bisected(a: Artefact, b: Artefact, images: Path | None, tolerance: float) -> Result:
    try:
        check_same_network(a, b)
        a, _ = layer_reference(a, b)
    except RcilError as error:
        item = Item("layers", "Layer by layer", None, error.message, "two forms of one network")
        return Result("bisect", f"Layers of {b.name} against {a.name}", (item,))
    shape = common_shape(a.shape, b.shape)
    image = fit(next(iter(images_for(images, shape, most=1))), shape)
    return find_layer(a, b, image.pixels, tolerance).as_result()
