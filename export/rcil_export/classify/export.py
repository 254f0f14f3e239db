"""Export of a classifier of whole images: its options, its conversion, and the comparison with its checkpoint."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import onnx

from rcil.classify.checkpoint import load_classifier
from rcil.classify.network import ImageClassifier, fold_classifier
from rcil.core.errors import ConfigError
from rcil.core.log import Notify
from rcil.model.header import read_header
from rcil.model.metadata import ClassifierMetadata, Metadata
from rcil_export.checks.limits import limits_for
from rcil_export.checks.outputs.report import OutputsReport
from rcil_export.checks.result import Result
from rcil_export.checks.structure import check_document
from rcil_export.classify.scores import ScoredGraph, compare_scores
from rcil_export.engine.sidecar import EngineSidecar
from rcil_export.exportable import MAX_IMAGES
from rcil_export.graph.description import parse_any_description
from rcil_export.graph.export import to_onnx
from rcil_export.graph.interface import (
    DEFAULT_OUTPUT,
    ClassifierInterface,
    GraphInterface,
    GraphOptions,
    make_interface,
)
from rcil_export.graph.onnx_file import load_document, texts_of
from rcil_export.graph.shapes import InputShape
from rcil_export.images import CheckImages, generated_images, images_for
from rcil_export.precision.replay import Converted
from rcil_export.request import Request
from rcil_export.resources import part
from rcil_export.triton.serving import Serving


class ClassifierExport:
    """See `Exportable`.

    Args:
        request: For a checkpoint of a classifier.
    """

    proves_engine = True

    def __init__(self, request: Request) -> None:
        assert isinstance(request.interface, ClassifierInterface)
        given = {
            "--calibrate": request.calibrate is not None,
            "--previous": request.parent is not None,
            "--triton": request.triton is not None,
            "--triton-...": request.serving != Serving(),
        }
        _refuse(request.model, given)
        self.request, self.graph = request, request.interface
        self.network, self.metadata = load_classifier(request.model)
        self.images = classifier_images(request.images, self.graph.shape, MAX_IMAGES)
        self._folded = _folded(self.network)

    @staticmethod
    def interface(path: Path, metadata: Metadata, options: GraphOptions) -> ClassifierInterface:
        """See `Exportable.interface`. Without a size, the graph takes that of the training images."""
        assert isinstance(metadata, ClassifierMetadata)
        if options.size is None and options.dynamic is None:
            options = replace(options, size=f"{metadata.size}x{metadata.size}")
        asked = make_interface(options)
        if asked.precision != "fp32":
            raise ConfigError(f"a classifier is exported in fp32, not in {asked.precision}", "Leave --precision out.")
        _refuse(path, {"--outputs": asked.outputs != (DEFAULT_OUTPUT,)})
        return ClassifierInterface(shape=asked.shape, input=asked.input, opset=asked.opset)

    @staticmethod
    def exact_document(path: Path, metadata: Metadata, interface: GraphInterface) -> onnx.ModelProto:
        """See `Exportable.exact_document`."""
        return to_onnx(_folded(load_classifier(path)[0]), metadata, interface)

    @property
    def summary(self) -> str:
        """See `Exportable.summary`."""
        metadata = self.metadata
        network = f"{metadata.architecture.backbone}, {metadata.head} head"
        return f"{network}, step {metadata.step}, {len(metadata.classes)} classes"

    def convert(self, deployed: Metadata, notify: Notify) -> Converted:
        """See `Exportable.convert`."""
        return Converted(to_onnx(self._folded, deployed, self.graph))

    def check(
        self, graph: Path, converted: Converted, sidecar: EngineSidecar | None
    ) -> tuple[list[Result], list[OutputsReport]]:
        """Structure, description, scores and labels; the outputs of an engine are not compared."""
        structure, description = check_document(graph, self.request.model, self.metadata)
        with part("outputs"):
            scored = ScoredGraph(converted.document, self.metadata, self.graph)
            limits = limits_for("fp32", "fp32", self.request.limits)
            outputs = compare_scores(self.network, self._folded, scored, self.images, limits)
        return [structure, description, outputs], []


def classifier_images(folder: Path | None, shape: InputShape, most: int) -> CheckImages:
    """The images of a folder to compare scores on; generated images of the usual size without a folder."""
    return generated_images(MAX_IMAGES, shape.usual[1:]) if folder is None else images_for(folder, shape, most=most)


def _folded(network: ImageClassifier) -> ImageClassifier:
    return network if network.arch.folded else fold_classifier(network)[0]


def _refuse(path: Path, given: dict[str, bool]) -> None:
    """Raise for the first option that was given and is about masks."""
    for name in (name for name, present in given.items() if present):
        raise ConfigError(
            f"{name} is for segmenters, and {path} is a classifier",
            "The graph of a classifier gives label and scores, in fp32, and nothing is calibrated. "
            "Leave the option out.",
        )


def is_classifier(path: Path) -> bool:
    """Whether a checkpoint or an ONNX file holds a classifier of whole images."""
    suffix = path.suffix.lower()
    if suffix == ".safetensors":
        return isinstance(read_header(path).metadata, ClassifierMetadata)
    if suffix == ".onnx":
        found = parse_any_description(texts_of(load_document(path)), path)
        return isinstance(found.interface, ClassifierInterface)
    return False


def check_files_of_classifier(first: Path, second: Path) -> None:
    """Raise unless the first file is the checkpoint of a classifier and the second an ONNX file of one."""
    if first.suffix.lower() != ".safetensors" or second.suffix.lower() != ".onnx":
        raise ConfigError(
            "a classifier of whole images is compared as a checkpoint and its ONNX file",
            "Give the checkpoint (.safetensors) first and the ONNX file (.onnx) second.",
        )
    if not is_classifier(first) or not is_classifier(second):
        classifier, other = (first, second) if is_classifier(first) else (second, first)
        raise ConfigError(f"{classifier} holds a classifier of whole images, and {other} does not", "Give its export.")


def scores_result(
    checkpoint: Path, graph: Path, *, images: Path | None, limits: dict[str, float], max_images: int
) -> Result:
    """Scores and labels of an exported classifier against its checkpoint.

    Args:
        checkpoint: The reference.
        graph: The ONNX file of a classifier.
        images: A folder; None: generated images.
        limits: Changes to the default limits.
        max_images: Number of images to use from the folder.
    """
    network, _ = load_classifier(checkpoint)
    document = load_document(graph)
    metadata, interface = parse_any_description(texts_of(document), graph)
    scored = ScoredGraph(document, metadata, interface)
    chosen = classifier_images(images, interface.shape, max_images)
    return compare_scores(network, _folded(network), scored, chosen, limits_for("fp32", "fp32", limits))
