"""Batches and sizes of an exported classifier: every row as its image alone, every size as in torch."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import onnx
import torch
from numpy.typing import NDArray

from rcil.classify.network import ImageClassifier
from rcil.core.images import Image
from rcil.inference import as_input
from rcil.model.metadata import ClassifierMetadata
from rcil_export.checks.limits import Limits
from rcil_export.checks.outputs.batch import MAX_DIFFERENT, arrangements, different_images
from rcil_export.checks.outputs.sizes import affordable, not_run, size_text, sizes_of
from rcil_export.checks.result import Item
from rcil_export.classify.checks import run_classifier
from rcil_export.classify.interface import ClassifierInterface
from rcil_export.graph.interface import Interface
from rcil_export.graph.preprocessing import image_input
from rcil_export.graph.shapes import InputShape
from rcil_export.images import CheckImage, CheckImages, fit
from rcil_export.runtime.sessions import open_session

Scores = NDArray[np.float64]


class ScoredGraph:
    """The graph of a classifier that is open.

    Args:
        document: The graph.
        metadata: Names colour order, mean and std.
        interface: What the graph takes and gives.
    """

    def __init__(self, document: onnx.ModelProto, metadata: ClassifierMetadata, interface: ClassifierInterface) -> None:
        self.session = open_session(document)
        self.metadata, self.shape = metadata, interface.shape
        self.layout = Interface(shape=interface.shape, input=interface.input)

    def scores(self, images: Sequence[Image]) -> Scores:
        """[N, classes] of N images of one size."""
        batch = np.stack([image_input(self.metadata, self.layout, image) for image in images])
        return run_classifier(self.session, batch)["scores"].astype(np.float64)

    def alone(self, image: Image) -> Scores:
        """[classes] of one image, which fills the smallest batch that the graph takes."""
        first: Scores = self.scores([image] * self.shape.batch.low)[0]
        return first


def variant_items(model: ImageClassifier, graph: ScoredGraph, images: Sequence[Image], limits: Limits) -> list[Item]:
    """Batches of different images where the graph takes batches, several sizes where it takes several.

    Args:
        model: In evaluation mode.
        graph: Its exported form.
        images: RGB [H, W, 3], at least one.
        limits: Of errors as a share of the range of scores.
    """
    return [*_batch_items(graph, images, limits), *_size_items(model, graph, images[0], limits)]


def _batch_items(graph: ScoredGraph, images: Sequence[Image], limits: Limits) -> list[Item]:
    shape = graph.shape
    counts = [count for count in sorted({shape.batch.low, shape.batch.usual, shape.batch.high}) if count > 1]
    if not counts:
        return []
    source = CheckImages("", tuple(_reader(image) for image in images))
    size = InputShape.of(shape.height.low, shape.width.low)
    different = different_images(source, min(counts[-1], MAX_DIFFERENT), size)
    alone = [graph.alone(image) for image in different]
    title, required = "Different images of a batch", "every row as its image alone"
    worst = 0.0
    for count in counts:
        for order in arrangements(count, min(count, len(different))):
            rows = graph.scores([different[at] for at in order])
            for row, at in enumerate(order):
                error = _error(alone[at], rows[row])
                worst = max(worst, error)
                if not error <= _allowed(limits):
                    text = f"row {row} of a batch of {count} is off by {error:.1e} of the range of scores"
                    return [Item("batch", title, False, text, required, {"row": row, "batch": count})]
    ran = " and ".join(map(str, counts))
    measured = f"batches of {ran}: scores within {worst:.1e} of their range"
    return [Item("batch", title, True, measured, required, {"batches": counts})]


def _reader(image: Image) -> Callable[[], CheckImage]:
    return lambda: CheckImage("", image)


@torch.no_grad()
def _size_items(model: ImageClassifier, graph: ScoredGraph, image: Image, limits: Limits) -> list[Item]:
    shape = graph.shape
    if shape.height.fixed and shape.width.fixed:
        return []
    classes = len(graph.metadata.classes)
    chosen, skipped = affordable(sizes_of(shape, model.arch.output_stride), classes, shape.batch.low)
    title, required = "Other sizes", "within the limits at every size"
    worst = 0.0
    for size in chosen:
        pixels = fit(CheckImage("", image), InputShape.of(*size)).pixels
        wanted = model(as_input(graph.metadata, pixels)[None])[0].double().numpy()
        error = _error(wanted, graph.alone(pixels))
        worst = max(worst, error)
        if not error <= _allowed(limits):
            text = f"at {size_text(size)} a score is off by {error:.1e} of their range"
            return [Item("sizes", title, False, text, required), *not_run(skipped)]
    names = ", ".join(map(size_text, chosen))
    return [
        Item("sizes", title, True, f"{names}: scores within {worst:.1e} of their range", required),
        *not_run(skipped),
    ]


def _error(wanted: Scores, found: Scores) -> float:
    return float(np.abs(wanted - found).max() / max(np.ptp(wanted), 1e-30))


def _allowed(limits: Limits) -> float:
    return float("inf") if limits.error is None else limits.error
