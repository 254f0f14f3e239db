"""What can be known to be wrong with a request before the long work begins."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from rcil.core.errors import ConfigError, RcilError
from rcil.core.files import check_writable
from rcil.evaluation.evaluate import rows_by_value
from rcil.model.metadata import Metadata
from rcil.nn import Segmenter
from rcil_export.checks.artefact import CheckpointArtefact
from rcil_export.checks.lineage import check_parent
from rcil_export.convert import check_vnni
from rcil_export.delivery.complete import check_signing
from rcil_export.engine.flavour import Flavour, choose_gpus, find_flavour
from rcil_export.fold_checkpoint import load_deployable
from rcil_export.images import CheckImages, images_for
from rcil_export.precision.feeds import find_feeds, split_images
from rcil_export.precision.half import check_op
from rcil_export.runtime.forms import check_engine_form
from rcil_export.timing.interleaved import LatencyOptions
from rcil_export.triton.repository import check_publishable
from rcil_export.triton.serving import Serving

if TYPE_CHECKING:
    from rcil_export.classify.run import ClassifierRequest
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
    check_output(request.output)
    check_signing(request.signing, request.output, publishes=request.triton is not None)
    if request.interface.precision in ("fp16", "bf16"):
        check_op("Conv", request.interface.precision, request.interface.opset)
    model, metadata = load_deployable(request.model, force=request.force)
    check_vnni(request.vnni, request.interface)
    images = _images_to_compare(request, metadata)
    if images.data is not None:
        rows_by_value(images.data, model.names)
    if request.parent is not None:
        check_parent(CheckpointArtefact(str(request.model), model, metadata), request.parent)
    if request.triton is None and request.serving != Serving():
        raise ConfigError(
            "--triton-... options are for --triton, which is not given", "Name a repository with --triton."
        )
    if request.triton is not None:
        check_output(request.triton)
        check_publishable(
            metadata,
            request.interface,
            request.triton,
            name=request.name,
            backend="tensorrt" if flavour is not None and flavour.name == "classic" else "onnxruntime",
            serving=request.serving,
            force=request.force,
        )
    return Prepared(model, metadata, images)


def classifier_preflight(request: ClassifierRequest) -> None:
    """As `preflight`, as far as a classifier is concerned; the checkpoint is read by the caller."""
    check_engine_and_rounds(request)
    check_output(request.output)
    check_signing(request.signing, request.output, publishes=False)


def check_output(folder: Path) -> None:
    """Raise if no folder can be made or written there."""
    if folder.exists() and not folder.is_dir():
        raise RcilError(f"cannot write to {folder}: it is a file", "Name a folder.")
    check_writable(folder)


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
        _refuse_engine_options(request)
        return None
    check_engine_form(request.interface, "the graph asked for")
    flavour = find_flavour(request.flavour)
    choose_gpus(flavour, request.gpus, request.interface.precision)
    return flavour


def _refuse_engine_options(request: Request | ClassifierRequest) -> None:
    """Options about engines say nothing where none is built: the user expects one."""
    for name, given in (("--gpu", bool(request.gpus)), ("--flavour", request.flavour != "auto")):
        if given:
            raise ConfigError(
                f"{name} is about engines, and no engine is asked for",
                f"Add `--target onnx,engine`, or leave {name} out.",
            )
