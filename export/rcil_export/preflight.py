"""What can be known to be wrong with a request before the long work begins."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from rcil.checkpoint.metadata import Metadata
from rcil.dry_run import require_place
from rcil.evaluate import rows_by_value
from rcil.nn import Segmenter
from rcil_export.check.artefact import CheckpointArtefact
from rcil_export.check.images import CheckImages, images_for
from rcil_export.check.latency import LatencyOptions
from rcil_export.check.lineage import check_parent
from rcil_export.convert_int8 import check_vnni
from rcil_export.engine.flavour import Flavour, find_flavour
from rcil_export.engine.targets import choose_gpus
from rcil_export.fold_checkpoint import load_deployable
from rcil_export.precision.feeds import find_feeds
from rcil_export.precision.split import split_images
from rcil_export.triton.repository import check_publishable

if TYPE_CHECKING:
    from rcil_export.classify import ClassifierRequest
    from rcil_export.run import Request

MOST_IMAGES = 32
"""To compare outputs on."""


@dataclass(frozen=True)
class Prepared:
    """What was read on the way."""

    model: Segmenter
    metadata: Metadata
    images: CheckImages
    """To compare outputs on."""


def preflight(request: Request) -> Prepared:
    """Raise for all that the export would trip over later; nothing is converted and nothing written."""
    flavour = check_engine_and_rounds(request)
    model, metadata = load_deployable(request.model, force=request.force)
    check_vnni(request.vnni, request.interface)
    images = _images_to_compare(request, metadata)
    if images.data is not None:
        rows_by_value(images.data, model.names)
    if request.parent is not None:
        check_parent(CheckpointArtefact(str(request.model), model, metadata), request.parent)
    if request.triton is not None:
        require_place(request.triton)
        check_publishable(
            metadata,
            request.interface,
            request.triton,
            name=request.name,
            backend="tensorrt" if flavour is not None and flavour.name == "classic" else "onnxruntime",
            force=request.force,
        )
    return Prepared(model, metadata, images)


def _images_to_compare(request: Request, metadata: Metadata) -> CheckImages:
    """The images that outputs are compared on; for int8 those that judged the conversion."""
    if request.interface.precision == "int8":
        return split_images(request.calibrate, request.images, metadata, request.interface).judged
    if request.interface.precision != "fp32":
        find_feeds(request.calibrate, metadata, request.interface)
    return images_for(request.images or request.calibrate, request.interface.shape, most=MOST_IMAGES)


def check_engine_and_rounds(request: Request | ClassifierRequest) -> Flavour | None:
    """What segmenters and classifiers have in common; returns the TensorRT that will build, if one is to."""
    if request.rounds:
        LatencyOptions(rounds=request.rounds)
    if "engine" not in request.targets:
        return None
    flavour = find_flavour(request.flavour)
    choose_gpus(flavour, request.gpus, request.interface.precision)
    return flavour
