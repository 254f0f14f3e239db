"""int8: risk per layer, calibration, and the layers that must stay out so that the masks stay right."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path

import numpy as np
import onnx

from rcil.evaluate import rows_by_value
from rcil.metrics import Confusion, mean_iou
from rcil.nn import Segmenter
from rcil_export.check.artefact import OnnxArtefact
from rcil_export.check.images import CheckImages, fit, images_for
from rcil_export.convert_types import Converted, PrecisionError, Say
from rcil_export.onnx_file import description_of
from rcil_export.precision.compare import agreement, rows_of
from rcil_export.precision.cpu import for_cpu
from rcil_export.precision.feeds import Feeds
from rcil_export.precision.int8 import CalibrationOptions, calibrate, quantise
from rcil_export.precision.risk import risk_table
from rcil_export.precision.search import Score, layer_errors, search

MOST_RISKS = 8
MOST_IMAGES = 32


def convert_int8(
    model: Segmenter,
    document: onnx.ModelProto,
    feeds: Feeds,
    images: Path | None,
    drop: float,
    options: CalibrationOptions,
    say: Say,
) -> Converted:
    """Quantise `document`, leaving out the convs whose rounding costs more than the user allows.

    Args:
        model: The network before folding, for the risk that folding brings.
        document: Its graph in fp32.
        feeds: To calibrate on.
        images: The folder they come from. With masks the score is mIoU, else agreement with fp32.
        drop: Points that the score may lose.
        options: How ranges are chosen.
        say: Told what is going on.
    """
    risks = risk_table(model)
    say("layers that folding made harder to quantise, the worst first:")
    for risk in risks[:MOST_RISKS]:
        say(f"  {risk.score:6.2f}  {risk.name}  (range x {risk.growth:.2f}, spread {risk.spread:.1f})")
    quantised = quantise(document, calibrate(document, feeds, options))
    say(f"calibrated on {feeds.count} images, {options.method}")
    what, score = _score(document, feeds, images)
    found = search(
        quantised,
        score,
        drop,
        layer_errors(quantised, feeds.first(1)),
        progress=lambda used, step: say(
            f"  {what} {step.score:.2f}, {step.drop:.2f} points lost; {len(step.excluded)} convs in fp32"
        ),
    )
    if not found.reached:
        raise PrecisionError(
            f"int8 loses {found.best.drop:.2f} points of {what}, {drop:g} are allowed, and leaving "
            f"{len(found.best.excluded)} convs in fp32 did not help",
            "Allow more with miou_drop, calibrate on more images, or choose --precision fp16.",
        )
    notes = {
        "score": what,
        "reference": found.reference,
        "drop": found.best.drop,
        "drop_allowed": drop,
        "fp32_convs": list(found.best.excluded),
        "path": [asdict(step) for step in found.path],
        "risks": [{**asdict(risk), "score": risk.score} for risk in risks],
        "calibrated_on": feeds.count,
    }
    return Converted(_form(found.document), notes)


def _form(document: onnx.ModelProto) -> onnx.ModelProto:
    """The quantised graph in the form that its runtime wants."""
    return for_cpu(document) if description_of(document)[1].runtime == "cpu" else document


def _score(document: onnx.ModelProto, feeds: Feeds, folder: Path | None) -> tuple[str, Score]:
    """MIoU in percent where there are masks, else percent of pixels with the class that fp32 gives."""
    _, interface = description_of(document)
    images = images_for(folder, interface.shape, most=MOST_IMAGES)
    if images.data is not None:
        return "mIoU", lambda candidate: miou(_form(candidate), images)
    reference, exact = rows_of(document, feeds), interface.runtime != "cpu"
    return "agreement", lambda candidate: 100 * agreement(reference, rows_of(_form(candidate), feeds, exact=exact))


def miou(document: onnx.ModelProto, images: CheckImages) -> float:
    """Percent over all classes of the graph on images with masks."""
    assert images.data is not None
    metadata, interface = description_of(document)
    names = [c.name for c in metadata.classes]
    table, confusion = rows_by_value(images.data, names), Confusion(len(names))
    with OnnxArtefact("int8", document, metadata, interface) as artefact:
        for image in images:
            fitted = fit(image, interface.shape)
            assert fitted.truth is not None
            confusion.update(table[fitted.truth], artefact.predict(fitted.pixels).mask.astype(np.uint8))
    return 100 * mean_iou(confusion.iou, range(len(names)))
