"""What the options of `rcil-export` mean for a classifier of whole images."""

from __future__ import annotations

from pathlib import Path

from rcil.checkpoint.header import read_header
from rcil.checkpoint.metadata import ClassifierMetadata
from rcil.errors import ConfigError
from rcil_export.classify import ClassifierRequest
from rcil_export.classify_interface import ClassifierInterface
from rcil_export.run import Request
from rcil_export.shapes import parse_shape
from rcil_export.triton.serving import Serving

FOR_MASKS = (
    "The graph of a classifier gives label and scores, in fp32, and nothing is calibrated. Leave the option out."
)


def classifier_of(path: Path) -> ClassifierMetadata | None:
    """The description of a classifier; None where the checkpoint holds something else."""
    metadata = read_header(path).metadata
    return metadata if isinstance(metadata, ClassifierMetadata) else None


def classifier_request(
    request: Request, metadata: ClassifierMetadata, size: str | None, dynamic: str | None, batch: str
) -> ClassifierRequest:
    """The same request for a classifier; options that are about masks are refused.

    Args:
        request: What was asked for, read as for a segmenter.
        metadata: Of the classifier; without a size the graph takes that of its training images.
        size: The option as given.
        dynamic: The option as given.
        batch: The option as given.
    """
    _refuse_options_of_masks(request)
    side = f"{metadata.size}x{metadata.size}" if size is None and dynamic is None else size
    interface = ClassifierInterface(
        shape=parse_shape(side, dynamic, batch), input=request.interface.input, opset=request.interface.opset
    )
    return ClassifierRequest(
        model=request.model,
        output=request.output,
        interface=interface,
        targets=request.targets,
        flavour=request.flavour,
        gpus=request.gpus,
        images=request.images,
        limits=request.limits,
        rounds=request.rounds,
        signing=request.signing,
    )


def _refuse_options_of_masks(request: Request) -> None:
    """`mask` is the default output, which nobody asked for."""
    if request.interface.precision != "fp32":
        raise ConfigError(
            f"a classifier is exported in fp32, not in {request.interface.precision}", "Leave --precision out."
        )
    given = {
        "--outputs": request.interface.outputs != ("mask",),
        "--calibrate": request.calibrate is not None,
        "--previous": request.parent is not None,
        "--triton": request.triton is not None,
        "--triton-...": request.serving != Serving(),
    }
    for name, present in given.items():
        if present:
            raise ConfigError(f"{name} is for segmenters, and {request.model} is a classifier", FOR_MASKS)
