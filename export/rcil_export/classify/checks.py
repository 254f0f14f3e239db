"""A classifier against its exported form: the same scores and labels."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx
import onnxruntime as ort
import torch
from numpy.typing import NDArray
from torch import Tensor

from rcil.classify.network import ImageClassifier
from rcil.core.errors import RunError
from rcil.core.images import Image
from rcil.inference import as_input
from rcil.model.metadata import ClassifierMetadata
from rcil_export.checks.artefact import run_session
from rcil_export.checks.limits import Limits
from rcil_export.checks.result import Item, Result
from rcil_export.classify.interface import ClassifierInterface
from rcil_export.graph.interface import INPUT_NAME, Interface
from rcil_export.graph.preprocessing import image_input
from rcil_export.runtime.sessions import open_session


@torch.no_grad()
def compare_scores(
    model: ImageClassifier,
    folded: ImageClassifier,
    document: onnx.ModelProto,
    metadata: ClassifierMetadata,
    interface: ClassifierInterface,
    images: Sequence[Image],
    limits: Limits,
) -> Result:
    """The network as trained against its folded form, and that against the graph, on the same images.

    Args:
        model: The network of the checkpoint, in evaluation mode.
        folded: Its deployed form.
        document: The graph of that.
        metadata: Its class table names the rows.
        interface: What the graph takes and gives.
        images: RGB [H, W, 3].
        limits: What may differ.
    """
    session = open_session(document)
    layout = Interface(shape=interface.shape, input=interface.input)
    trained, deployed, labels, scores = [], [], [], []
    for image in images:
        x = as_input(metadata, image)[None]
        trained.append(_row(model(x)))
        deployed.append(_row(folded(x)))
        batch = np.stack([image_input(metadata, layout, image)] * interface.shape.batch.low)
        outputs = run_classifier(session, batch)
        labels.append(int(outputs["label"][0]))
        scores.append(outputs["scores"][0].astype(np.float64))
    as_trained, as_folded, as_graph = (np.stack(rows) for rows in (trained, deployed, scores))
    items = (
        *_pair("fold", "Folded against trained network", as_trained, as_folded, as_folded.argmax(1), limits),
        *_pair("onnx", "ONNX Runtime against folded network", as_folded, as_graph, np.array(labels), limits),
    )
    return Result("outputs", f"Scores and labels on {len(images)} images", items)


def run_classifier(session: ort.InferenceSession, batch: NDArray[Any]) -> dict[str, NDArray[Any]]:
    """Labels and scores of a batch in the layout of the graph, one of each for every image."""
    outputs = run_session(session, {INPUT_NAME: batch}, "the exported graph")
    for name in ("label", "scores"):
        if name not in outputs or len(outputs[name]) != len(batch):
            raise RunError(f"the exported graph gives no {name} for each image", "Export it again.")
    return outputs


def _row(scores: Tensor) -> NDArray[np.float64]:
    return scores[0].double().numpy()


def _pair(
    key: str,
    title: str,
    first: NDArray[np.float64],
    second: NDArray[np.float64],
    labels: NDArray[np.int64],
    limits: Limits,
) -> tuple[Item, Item]:
    """Errors of scores [N, classes] as a share of the range of the first, and labels [N] that differ, ties aside."""
    span = max(float(first.max() - first.min()), 1e-30)
    error = float(np.abs(first - second).max()) / span
    best = first.argmax(1)
    rows = np.arange(len(first))
    tied = (first[rows, best] - first[rows, labels]) <= limits.tie * span
    share = float(np.mean((best == labels) | tied))
    allowed = float("inf") if limits.error is None else limits.error
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
