"""The verbs of `rcil-export` as functions: what `import rcil_export` offers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from rcil.core.allowed_imports import allowing
from rcil.core.log import Notify, Progress
from rcil_export.check_files import CheckReport, check_files
from rcil_export.engine.flavour import FlavourChoice
from rcil_export.graph.interface import (
    DEFAULT_BATCH,
    DEFAULT_OUTPUT,
    DEFAULT_PRECISION,
    DEFAULT_RUNTIME,
    GraphOptions,
    Output,
    Precision,
    Runtime,
)
from rcil_export.input_size import with_size
from rcil_export.request import AUTO, MAX_CHECK_IMAGES, Request, Target
from rcil_export.run import Exported, interface_of, run_export
from rcil_export.targets import choose_targets
from rcil_export.verification.report import VerifyReport
from rcil_export.verification.run import verify as run_verify

Size = tuple[int, int]
"""Height and width."""


def export(
    model: str | Path,
    output: str | Path,
    *,
    size: Size | None = None,
    scale: float | None = None,
    dynamic: tuple[Size, Size, Size] | None = None,
    batch: int | tuple[int, int, int] = DEFAULT_BATCH,
    precision: Precision = DEFAULT_PRECISION,
    targets: Sequence[Target] | None = None,
    gpus: Sequence[str] = Request.gpus,
    flavour: FlavourChoice = Request.flavour,
    outputs: Sequence[Output] = (DEFAULT_OUTPUT,),
    opset: int | None = None,
    runtime: Runtime = DEFAULT_RUNTIME,
    calibrate: str | Path | None = None,
    images: str | Path | None = None,
    previous: str | Path | None = None,
    limits: Mapping[str, float] | None = None,
    rounds: int = Request.rounds,
    force: bool = Request.force,
    allow: Sequence[str] = (),
    say: Notify = lambda text: None,
) -> Exported:
    """Fold a checkpoint, convert it to ONNX, build the engine, check everything and write a report.

    If a check fails, `ok` of the result is False, the folder gets the report alone, and files of an earlier export in
    it stay as they are. Signing and Triton repositories are options of the command `rcil-export`.

    Example:
        >>> exported = rcil_export.export("model.safetensors", "deployed", size=(64, 96), targets=["onnx"], rounds=0)
        >>> exported.ok
        True
        >>> sorted(exported.files)
        ['model.onnx', 'model_card.md', 'report.html', 'report.json']

    Args:
        model: The checkpoint of a segmenter or classifier.
        output: Folder to write to.
        size: Height and width of the input. By default 512 x 512, the size of a classifier's training images, or that
            of `images` in the training of a model that saw them resized.
        scale: Height and width of the input as a multiple of those of `images`, instead of `size`.
        dynamic: Smallest, usual and largest size, instead of `size`.
        batch: Images at once, or the smallest, usual and largest number.
        precision: Precision of weights and activations.
        targets: `onnx`, or `onnx` and `engine`. None: an ONNX file, and an engine where TensorRT can build one.
        gpus: Compute capabilities to build the engine for, such as `sm86`.
        flavour: Which TensorRT builds the engine.
        outputs: What the graph returns: `mask`, `confidence`, `logits`.
        opset: ONNX opset; chosen by the precision by default.
        runtime: What the graph is written for.
        calibrate: Folder of site images on which fp16, bf16 and int8 are measured.
        images: Folder of images on which outputs are compared.
        previous: The checkpoint of the step before, to report what changed.
        limits: Changes to the limits of the checks, by name.
        rounds: Timed runs of the latency comparison; 0 leaves it out.
        force: Export a checkpoint that is marked as rejected.
        allow: Packages whose code may build the network, if it is one of another library.
        say: Called with a line of text at every stage.
    """
    options = GraphOptions(
        size=None if size is None else "x".join(map(str, size)),
        dynamic=None if dynamic is None else ":".join("x".join(map(str, one)) for one in dynamic),
        batch=":".join(map(str, (batch,) if isinstance(batch, int) else batch)),
        precision=precision,
        outputs=",".join(outputs),
        opset=opset,
        runtime=runtime,
    )
    folder = _path(images) or _path(calibrate)
    options = with_size(options, Path(model), folder, scale, say)
    interface = interface_of(Path(model), options)
    chosen = choose_targets(
        AUTO if targets is None else ",".join(targets), interface, flavour=flavour, gpus=tuple(gpus)
    )
    request = Request(
        model=Path(model),
        output=Path(output),
        interface=interface,
        targets=chosen.names,
        targets_reason=chosen.reason,
        flavour=flavour,
        gpus=tuple(gpus),
        calibrate=_path(calibrate),
        images=_path(images),
        parent=_path(previous),
        limits=dict(limits or {}),
        rounds=rounds,
        force=force,
    )
    with allowing(allow):
        return run_export(request, say)


def check(
    first: str | Path,
    second: str | Path,
    *,
    images: str | Path | None = None,
    scale: float | None = None,
    limits: Mapping[str, float] | None = None,
    max_images: int = MAX_CHECK_IMAGES,
    bisect: bool = True,
    allow: Sequence[str] = (),
    progress: Progress = lambda done, total: None,
) -> CheckReport:
    """Compare two artefacts: structure, metadata and, on images, logits, masks and mIoU.

    Example:
        >>> rcil_export.check("model.safetensors", "deployed/model.onnx", images="my_site", max_images=2).ok
        True

    Args:
        first: The reference: a checkpoint, ONNX file or engine.
        second: The artefact that is checked against it.
        images: Folder of images, best a site folder; generated images by default.
        scale: Factor by which images are resized, if both files take several sizes; by default as in the training.
        limits: Changes to the limits, by name.
        max_images: Number of images to compare on.
        bisect: Also compare layer by layer and name the first layer that differs by itself.
        allow: Packages whose code may build the network, if it is one of another library.
        progress: Called with the number of compared images and their total.
    """
    with allowing(allow):
        return check_files(
            Path(first),
            Path(second),
            images=_path(images),
            scale=scale,
            limits=dict(limits or {}),
            max_images=max_images,
            bisect=bisect,
            progress=progress,
        )


def verify(
    delivered: str | Path,
    checkpoint: str | Path,
    *,
    calibrate: str | Path | None = None,
    allow: Sequence[str] = (),
    say: Notify = lambda text: None,
) -> VerifyReport:
    """Export the checkpoint again with the options that the delivered model states, and compare everything.

    Example:
        >>> report = rcil_export.verify("deployed", "model.safetensors")
        >>> report.ok, report.differences
        (True, ())

    Args:
        delivered: A folder that `export` wrote, a single ONNX file, or a Triton model repository.
        checkpoint: The checkpoint that it was exported from.
        calibrate: Folder of the images that fp16, bf16 or int8 were measured on, to measure again.
        allow: Packages whose code may build the network, if it is one of another library.
        say: Called with a line of text at every stage.
    """
    with allowing(allow):
        return run_verify(Path(delivered), Path(checkpoint), calibrate=_path(calibrate), notify=say)


def _path(path: str | Path | None) -> Path | None:
    return None if path is None else Path(path)
