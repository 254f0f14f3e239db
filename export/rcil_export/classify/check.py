"""Comparing a classifier of whole images with its ONNX file."""

from __future__ import annotations

from pathlib import Path

from rcil.classify.checkpoint import load_classifier
from rcil.classify.network import ImageClassifier, fold_classifier
from rcil.core.errors import ConfigError, RcilError, RunError
from rcil.core.images import Image
from rcil.model.header import read_header
from rcil.model.metadata import ClassifierMetadata
from rcil_export.checks.document import check_document
from rcil_export.checks.limits import Limits, limits_for
from rcil_export.checks.result import Item, Result
from rcil_export.classify.checks import compare_scores
from rcil_export.classify.variants import ScoredGraph, variant_items
from rcil_export.graph.description import ClassifierDescription, parse_any_description
from rcil_export.graph.onnx_file import load_document, texts_of
from rcil_export.graph.shapes import InputShape
from rcil_export.images import fit, generated_images, images_for
from rcil_export.runtime.sessions import SessionError

IMAGES = 32
"""To compare outputs on, where they are generated."""


def is_classifier(path: Path) -> bool:
    """Whether a checkpoint or an ONNX file holds a classifier of whole images."""
    suffix = path.suffix.lower()
    if suffix == ".safetensors":
        return isinstance(read_header(path).metadata, ClassifierMetadata)
    if suffix == ".onnx":
        return isinstance(parse_any_description(texts_of(load_document(path)), path), ClassifierDescription)
    return False


def check_classifier(
    checkpoint: Path, graph: Path, *, images: Path | None, changes: dict[str, float], most: int
) -> list[Result]:
    """Structure, description, scores and labels of an exported classifier against its checkpoint.

    Args:
        checkpoint: The reference.
        graph: Its ONNX file.
        images: A folder; generated images without.
        changes: To the default limits.
        most: Images to use.
    """
    if checkpoint.suffix.lower() != ".safetensors" or graph.suffix.lower() != ".onnx":
        raise ConfigError(
            "a classifier of whole images is compared as a checkpoint and its ONNX file",
            "Give the checkpoint (.safetensors) first and the ONNX file (.onnx) second.",
        )
    model, metadata = load_classifier(checkpoint)
    document = load_document(graph)
    found = parse_any_description(texts_of(document), graph)
    if not isinstance(found, ClassifierDescription):
        raise ConfigError(f"{checkpoint} is a classifier of whole images, and {graph} gives masks", "Give its export.")
    results: list[Result] = [*check_document(graph, checkpoint, metadata)]
    try:
        scored = ScoredGraph(document, found.metadata, found.interface)
        chosen = check_images(images, found.interface.shape, most)
        limits = limits_for("fp32", "fp32", changes)
        folded = model if model.arch.folded else fold_classifier(model)[0]
        outputs = compare_scores(model, folded, document, found.metadata, found.interface, chosen, limits)
        results.append(with_variants(outputs, folded, scored, chosen, limits))
    except (RunError, SessionError) as error:
        if all(result.ok for result in results):
            raise
        results.append(broken(graph, error))
    return results


def with_variants(
    outputs: Result, model: ImageClassifier, graph: ScoredGraph, images: list[Image], limits: Limits
) -> Result:
    """The comparison of outputs with that of batches and sizes behind it."""
    return Result(outputs.key, outputs.title, (*outputs.items, *variant_items(model, graph, images, limits)))


def check_images(folder: Path | None, shape: InputShape, most: int) -> list[Image]:
    """RGB images [H, W, 3], each of a size that the graph takes; generated ones without a folder."""
    found = generated_images(IMAGES, shape.usual[1:]) if folder is None else images_for(folder, shape, most=most)
    return [fit(image, shape).pixels for image in found]


def broken(path: Path, error: RcilError) -> Result:
    """A file whose structure is wrong and which therefore does not run."""
    item = Item("runs", "Outputs", False, f"not compared: {error.message}", "a file that runs")
    return Result("outputs", f"Outputs of {path}", (item,))
