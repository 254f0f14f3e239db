"""Scores and labels of a classifier against those of its exported graph: on images, in batches and at other sizes."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import onnx
import torch
from numpy.typing import NDArray

from rcil.classify.network import ImageClassifier
from rcil.core.errors import RunError
from rcil.core.images import Image
from rcil.inference import as_input
from rcil.model.metadata import Metadata
from rcil_export.checks.artefact import run_session
from rcil_export.checks.limits import Limits
from rcil_export.checks.outputs.variants import (
    MAX_DIFFERENT,
    affordable,
    arrangements,
    batch_counts,
    different_images,
    not_run,
    size_text,
    sizes_of,
)
from rcil_export.checks.result import Item, Result
from rcil_export.graph.interface import INPUT_NAME, GraphInterface
from rcil_export.graph.preprocessing import image_input
from rcil_export.graph.shapes import InputShape
from rcil_export.images import CheckImage, CheckImages, fit
from rcil_export.runtime.sessions import open_session

Scores = NDArray[np.float64]
Labels = NDArray[np.int64]


class ScoredGraph:
    """The graph of a classifier, ready to run.

    Args:
        document: The graph.
        metadata: Its colour order, mean and std prepare the images.
        interface: What the graph takes and gives.
    """

    def __init__(self, document: onnx.ModelProto, metadata: Metadata, interface: GraphInterface) -> None:
        self.session = open_session(document)
        self.metadata, self.interface, self.shape = metadata, interface, interface.shape

    def run(self, images: Sequence[Image]) -> tuple[Labels, Scores]:
        """Labels [N] and scores [N, classes] of N images of one size."""
        batch = np.stack([image_input(self.metadata, self.interface, image) for image in images])
        outputs = run_session(self.session, {INPUT_NAME: batch}, "the exported graph")
        for name in ("label", "scores"):
            if name not in outputs or len(outputs[name]) != len(batch):
                raise RunError(f"the exported graph gives no {name} for each image", "Export it again.")
        return outputs["label"].astype(np.int64), outputs["scores"].astype(np.float64)

    def alone(self, image: Image) -> tuple[int, Scores]:
        """Label and scores [classes] of one image, which fills the smallest batch that the graph takes."""
        labels, scores = self.run([image] * self.shape.batch.low)
        return int(labels[0]), scores[0]


@torch.no_grad()
def compare_scores(
    network: ImageClassifier, folded: ImageClassifier, graph: ScoredGraph, images: CheckImages, limits: Limits
) -> Result:
    """The network as trained against its folded form, and that against the graph, on the same images.

    Args:
        network: The network of the checkpoint, in evaluation mode.
        folded: Its deployed form.
        graph: The exported graph of that.
        images: Resized where the graph does not take their size.
        limits: Errors are shares of the range of the scores.
    """
    fitted = [fit(image, graph.shape).pixels for image in images]
    as_trained, as_folded = (np.stack([_scores(one, graph, image) for image in fitted]) for one in (network, folded))
    found = [graph.alone(image) for image in fitted]
    labels, as_graph = np.array([label for label, _ in found]), np.stack([scores for _, scores in found])
    items = (
        *_pair("fold", "Folded against trained network", as_trained, as_folded, as_folded.argmax(1), limits),
        *_pair("onnx", "ONNX Runtime against folded network", as_folded, as_graph, labels, limits),
        *batch_items(graph, images, limits),
        *size_items(folded, graph, fitted[0], limits),
    )
    return Result("outputs", f"Scores and labels on {len(fitted)} images", items)


def _scores(network: ImageClassifier, graph: ScoredGraph, image: Image) -> Scores:
    """Scores [classes] of one RGB image [H, W, 3] in torch."""
    scores: Scores = network(as_input(graph.metadata, image)[None])[0].double().numpy()
    return scores


def _pair(key: str, title: str, first: Scores, second: Scores, labels: Labels, limits: Limits) -> tuple[Item, Item]:
    """Errors of scores [N, classes] as a share of the range of the first, and labels [N] that differ, ties aside."""
    span = max(float(first.max() - first.min()), 1e-30)
    error = float(np.abs(first - second).max()) / span
    best = first.argmax(1)
    rows = np.arange(len(first))
    tied = (first[rows, best] - first[rows, labels]) <= limits.tie * span
    share = float(np.mean((best == labels) | tied))
    allowed = _allowed(limits)
    return (
        Item(
            f"{key}_error",
            f"{title}: largest error of a score",
            error <= allowed,
            f"{error:.1e} of the range of scores",
            f"at most {allowed:.0e}",
            {"error": error},
        ),
        Item(
            f"{key}_labels",
            f"{title}: same label",
            share >= limits.agreement,
            f"{share:.2%} of {len(first)} images",
            f"at least {limits.agreement:.2%}",
            {"share": share, "images": len(first)},
        ),
    )


def batch_items(graph: ScoredGraph, images: CheckImages, limits: Limits) -> list[Item]:
    """Batches of different images, where the graph takes batches: every row must be as its image alone."""
    shape = graph.shape
    counts = batch_counts(shape)
    if not counts:
        return []
    size = InputShape.of(shape.height.low, shape.width.low)
    different = different_images(images, min(counts[-1], MAX_DIFFERENT), size)
    alone = [graph.alone(image)[1] for image in different]
    title, required = "Different images of a batch", "every row as its image alone"
    worst = 0.0
    for count in counts:
        for order in arrangements(count, min(count, len(different))):
            _, rows = graph.run([different[index] for index in order])
            for row, index in enumerate(order):
                error = _error(alone[index], rows[row])
                worst = max(worst, error)
                if not error <= _allowed(limits):
                    text = f"row {row} of a batch of {count} is off by {error:.1e} of the range of scores"
                    return [Item("batch", title, False, text, required, {"row": row, "batch": count})]
    ran = " and ".join(map(str, counts))
    measured = f"batches of {ran}: scores within {worst:.1e} of their range"
    return [Item("batch", title, True, measured, required, {"batches": counts})]


@torch.no_grad()
def size_items(network: ImageClassifier, graph: ScoredGraph, image: Image, limits: Limits) -> list[Item]:
    """One image at several sizes, where the graph takes several: scores must be those of the network in torch."""
    shape = graph.shape
    if shape.height.fixed and shape.width.fixed:
        return []
    classes = len(graph.metadata.classes)
    chosen, skipped = affordable(sizes_of(shape, network.arch.output_stride), classes, shape.batch.low)
    title, required = "Other sizes", "within the limits at every size"
    worst = 0.0
    for size in chosen:
        pixels = fit(CheckImage("", image), InputShape.of(*size)).pixels
        error = _error(_scores(network, graph, pixels), graph.alone(pixels)[1])
        worst = max(worst, error)
        if not error <= _allowed(limits):
            text = f"at {size_text(size)} a score is off by {error:.1e} of their range"
            return [Item("sizes", title, False, text, required), *not_run(skipped)]
    names = ", ".join(map(size_text, chosen))
    passed = Item("sizes", title, True, f"{names}: scores within {worst:.1e} of their range", required)
    return [passed, *not_run(skipped)]


def _error(wanted: Scores, found: Scores) -> float:
    return float(np.abs(wanted - found).max() / max(np.ptp(wanted), 1e-30))


def _allowed(limits: Limits) -> float:
    return float("inf") if limits.error is None else limits.error
