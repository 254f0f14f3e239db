"""`step.json`, which explains one version of a served model, and the tensors that all versions have in common.

No torch here: clients read the file.
"""

from __future__ import annotations

from enum import Enum
from pathlib import Path
from typing import Annotated, Literal

from pydantic import ConfigDict, Field

from rcil.core.errors import ConfigError
from rcil.model.architecture import FrozenModel
from rcil.model.metadata import ClassInfo, Metadata
from rcil_export.graph.description import read_described
from rcil_export.graph.interface import INPUT_NAME, Interface, Output
from rcil_export.graph.shapes import Extent

FILE_NAME = "step.json"
Backend = Literal["onnxruntime", "tensorrt"]
"""Triton's backends that run our models."""
MAX_UINT8_CLASSES = 256
"""A mask of more classes is int32."""


class DType(Enum):
    """Element types of our models, by their names in Triton."""

    UINT8 = "TYPE_UINT8"
    INT32 = "TYPE_INT32"
    FP32 = "TYPE_FP32"


class Tensor(FrozenModel):
    """One input or output."""

    name: str
    dtype: DType
    shape: tuple[int | None, ...]
    """None stands for a size that varies."""

    def __str__(self) -> str:
        sizes = ", ".join("?" if size is None else str(size) for size in self.shape)
        return f"{self.name} {self.dtype.name.lower()} [{sizes}]"


class Signature(FrozenModel):
    """The tensors that clients send and receive."""

    image: Tensor
    """uint8 [N, H, W, 3]."""
    outputs: tuple[Tensor, ...]
    """`mask` [N, H, W]; optionally `confidence` [N, H, W] and `logits` [N, C, H, W]."""

    def __str__(self) -> str:
        return f"{self.image} -> {', '.join(map(str, self.outputs))}"


def signature_of(interface: Interface, classes: int) -> Signature:
    """The tensors of a deployed model, whether it is an ONNX file or an engine."""
    if interface.input != "uint8" or "mask" not in interface.outputs:
        raise ConfigError(
            f"the model takes {interface.input} images and gives {', '.join(interface.outputs)}; "
            "a Triton repository is for models that take uint8 images and give masks",
            "Export it with uint8 input and the output mask.",
        )
    shape = interface.shape
    batch, height, width = (_size(extent) for extent in (shape.batch, shape.height, shape.width))
    shapes: dict[Output, tuple[int | None, ...]] = {"logits": (batch, classes, height, width)}
    dtypes: dict[Output, DType] = {"mask": DType.UINT8 if classes <= MAX_UINT8_CLASSES else DType.INT32}
    outputs = tuple(
        Tensor(name=name, dtype=dtypes.get(name, DType.FP32), shape=shapes.get(name, (batch, height, width)))
        for name in interface.outputs
    )
    return Signature(image=Tensor(name=INPUT_NAME, dtype=DType.UINT8, shape=(batch, height, width, 3)), outputs=outputs)


def _size(extent: Extent) -> int | None:
    return extent.low if extent.fixed else None


class Description(FrozenModel):
    """The description of the model, as the ONNX file holds it."""

    metadata: Metadata
    interface: Interface


class StepFile(FrozenModel):
    """What a client needs to interpret the masks of one version, and the exporter needs to add another."""

    model_config = ConfigDict(protected_namespaces=())

    step: Annotated[int, Field(ge=0)]
    classes: tuple[ClassInfo, ...]
    """Mask value i is the class at index i."""
    colour_order: Literal["RGB", "BGR"]
    backend: Backend
    signature: Signature
    batch: Extent | None = None
    """Smallest, usual and largest batch; None in files of older versions of rcil-export."""
    model_sha256: str
    description: Description | None = None
    """None in files of older versions of rcil-export."""


def read_step_file(version: Path) -> StepFile:
    """Read `step.json` from the folder of a version."""
    return read_described(
        version / FILE_NAME,
        StepFile,
        "a step",
        missing="The folder was not written by rcil-export: publish under another name.",
        wrong="It was damaged, or written by another version of rcil-export: publish under another name.",
    )
