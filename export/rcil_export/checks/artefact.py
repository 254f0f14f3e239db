"""Checkpoints, ONNX files and engines behind one interface: an image goes in, logits and a mask come out."""

from __future__ import annotations

import contextlib
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import numpy as np
import onnx
import onnxruntime as ort
import torch
from numpy.typing import NDArray

from rcil.checkpoint.file import load_for_inference
from rcil.core.errors import ConfigError, RcilError, RunError, first_line
from rcil.core.images import Image
from rcil.inference import as_input
from rcil.model.metadata import Metadata
from rcil.nn import Network
from rcil_export.checks.tensor_precision import precision_of
from rcil_export.graph.description import parse_description
from rcil_export.graph.interface import INPUT_NAME, Interface, Precision
from rcil_export.graph.onnx_file import read_onnx
from rcil_export.graph.postprocessing import BY_PIXEL, full_logits
from rcil_export.graph.preprocessing import image_input
from rcil_export.graph.shapes import InputShape
from rcil_export.precision.compare import with_rounding
from rcil_export.precision.int8.weights import kernels_are_exact
from rcil_export.runtime.sessions import SessionError, open_session

Logits = NDArray[np.float32]
Mask = NDArray[np.int64]
ENGINES = (".engine", ".plan")


@dataclass(frozen=True)
class Prediction:
    """The outputs of an artefact for one image."""

    mask: Mask
    """Class rows [H, W], as the artefact itself chose them."""
    logits: Logits | None
    """[classes, H, W]; None if the artefact does not give them."""
    confidence: NDArray[np.float32] | None = None
    """Probability of the chosen class [H, W]; None if the artefact does not give it."""


class Artefact(ABC):
    """An open model file; a context manager.

    Args:
        name: For messages and reports.
        metadata: Its class table names the rows.
        precision: Precision of its convs.
        shape: The sizes it takes; None: any. `images.fit` resizes other images.
    """

    def __init__(self, name: str, metadata: Metadata, precision: Precision, shape: InputShape | None) -> None:
        self.name = name
        self.metadata = metadata
        self.precision = precision
        self.shape = shape

    @abstractmethod
    def predict(self, image: Image) -> Prediction:
        """Logits and mask of one RGB image [H, W, 3] of a size that `shape` takes, from one run."""

    def close(self) -> None:  # noqa: B027 -- most have nothing to release
        """Release its resources."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


class CheckpointArtefact(Artefact):
    """A network in torch, folded or not."""

    def __init__(self, name: str, model: Network, metadata: Metadata) -> None:
        super().__init__(name, metadata, "fp32", None)
        self.model = model.eval()

    @torch.no_grad()
    def predict(self, image: Image) -> Prediction:
        """See `Artefact.predict`."""
        logits = self.model(as_input(self.metadata, image)[None])[0].float()
        return Prediction(logits.argmax(0).numpy(), logits.numpy(), logits.softmax(0).amax(0).numpy())


class GraphArtefact(Artefact):
    """Base class of ONNX files and engines: one input, named outputs."""

    def __init__(self, name: str, metadata: Metadata, interface: Interface) -> None:
        super().__init__(name, metadata, interface.precision, interface.shape)
        self.interface = interface

    @abstractmethod
    def run(self, batch: NDArray[Any]) -> dict[str, NDArray[Any]]:
        """Outputs by name, for images in the layout that the interface states."""

    def predict(self, image: Image) -> Prediction:
        """See `Artefact.predict`. A graph for several images gets copies of the image; the first row counts."""
        return next(self.predict_images([image] * self.interface.shape.batch.low))

    def predict_images(self, images: Sequence[Image]) -> Iterator[Prediction]:
        """Predictions for a batch of images [H, W, 3] of one size, row by row, from one run."""
        count = len(images)
        outputs = self.run(np.stack([image_input(self.metadata, self.interface, image) for image in images]))
        for name, values in outputs.items():
            if len(values) != count:
                raise RunError(f"{self.name} gives {len(values)} x {name} for {count} images", "Export it again.")
            size = values.shape[1:3] if name == BY_PIXEL else values.shape[-2:]
            if size != images[0].shape[:2]:
                sides = f"{'x'.join(map(str, size))} for images of {'x'.join(map(str, images[0].shape[:2]))}"
                raise RunError(f"{self.name} gives {name} of {sides}", "Export it again.")
        return (self._prediction({name: values[row] for name, values in outputs.items()}) for row in range(count))

    def _prediction(self, outputs: dict[str, NDArray[Any]]) -> Prediction:
        """The prediction from the outputs of one image."""
        logits = confidence = None
        if "logits" in outputs:
            logits = outputs["logits"].astype(np.float32)
        elif BY_PIXEL in outputs:
            logits = np.ascontiguousarray(np.moveaxis(outputs[BY_PIXEL].astype(np.float32), -1, 0))
        if "confidence" in outputs:
            confidence = outputs["confidence"].astype(np.float32)
        if "mask" in outputs:
            return Prediction(outputs["mask"].astype(np.int64), logits, confidence)
        if logits is None:
            raise RunError(f"{self.name} gives neither mask nor logits", "Export it with the output mask.")
        return Prediction(logits.argmax(0), logits, confidence)


class OnnxArtefact(GraphArtefact):
    """An ONNX graph in ONNX Runtime on the CPU.

    The logits before the last argmax are read too if the file does not give them. A graph of less than fp32 runs node
    by node as it is written, with every half value rounded (`with_rounding`), as a GPU computes it: by itself, ONNX
    Runtime has no bf16 convs for CPUs and leaves out roundings to fp16. The precision is that of the tensors, whatever
    the file's label says. An int8 graph for CPUs runs in ONNX Runtime's int8 kernels, unless it was made for a CPU with
    VNNI and this CPU has none, so that sums would overflow.

    Args:
        name: For messages and reports.
        document: The graph; it is not changed.
        metadata: The description in the file.
        interface: The interface in the file.
    """

    def __init__(self, name: str, document: onnx.ModelProto, metadata: Metadata, interface: Interface) -> None:
        super().__init__(name, metadata, interface)
        self.source = document
        self.precision = precision_of(document).precision
        self.document = _rounded(name, document) if self.precision in ("fp16", "bf16") else document
        extra = [value] if (value := _logits_value(document)) is not None else []
        as_written = self.precision != "fp32" and not (
            self.precision == "int8" and interface.runtime == "cpu" and kernels_are_exact(document)
        )
        self.session = open_session(self.document, exact=as_written, outputs=extra, name=name)

    def run(self, batch: NDArray[Any]) -> dict[str, NDArray[Any]]:
        """See `GraphArtefact.run`."""
        return run_session(self.session, {INPUT_NAME: batch}, self.name)


def _rounded(name: str, document: onnx.ModelProto) -> onnx.ModelProto:
    try:
        return with_rounding(document)
    except onnx.shape_inference.InferenceError as error:
        raise SessionError(f"{name} is not valid ONNX: {first_line(error)}", "Export it again.") from error


def _logits_value(document: onnx.ModelProto) -> str | None:
    """The value with the full-size logits, if they are not among the graph's outputs."""
    given = {output.name for output in document.graph.output}
    written = {name for node in document.graph.node for name in node.output}
    name, _ = full_logits(document)
    return None if "logits" in given or name in given or name not in written else name


def run_session(session: ort.InferenceSession, inputs: dict[str, NDArray[Any]], name: str) -> dict[str, NDArray[Any]]:
    """Run a session; returns all outputs by name."""
    names = [output.name for output in session.get_outputs()]
    try:
        return dict(zip(names, session.run(names, inputs), strict=True))
    except Exception as error:  # its exceptions have no common base class
        raise RunError(f"ONNX Runtime cannot run {name}: {first_line(error)}", "Export it again.") from error


class EngineArtefact(GraphArtefact):
    """A TensorRT engine on the first GPU."""

    def __init__(self, path: Path) -> None:
        from rcil_export.engine.runner import EngineRunner

        self._stack = contextlib.ExitStack()
        self.runner = self._stack.enter_context(EngineRunner(path))
        try:
            description = parse_description(self.runner.sidecar.metadata, path)
        except RcilError:
            self._stack.close()
            raise
        super().__init__(str(path), *description)

    def run(self, batch: NDArray[Any]) -> dict[str, NDArray[Any]]:
        """See `GraphArtefact.run`."""
        return self.runner.run(batch)

    def close(self) -> None:
        """Release the GPU."""
        self._stack.close()


def open_artefact(path: Path) -> Artefact:
    """Open a model file by its suffix; an `RcilError` names a file that is wrong.

    Args:
        path: `.safetensors`, `.onnx`, or `.engine` / `.plan` with its sidecar.
    """
    suffix = path.suffix.lower()
    if suffix == ".safetensors":
        model, metadata = load_for_inference(path)
        return CheckpointArtefact(str(path), model, metadata)
    if suffix == ".onnx":
        file = read_onnx(path)
        return OnnxArtefact(str(path), file.document, file.metadata, file.interface)
    if suffix in ENGINES:
        return EngineArtefact(path)
    raise ConfigError(
        f"{path} is not a model file that can be compared",
        "Give a checkpoint (.safetensors), an ONNX file (.onnx) or an engine (.engine, .plan).",
    )
