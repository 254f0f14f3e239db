"""The inputs and outputs of an exported graph, as its file describes them. No torch here: serving reads it."""

from __future__ import annotations

from typing import Annotated, Literal, get_args

from pydantic import BaseModel, ConfigDict, Field, field_validator

from rcil.core.errors import ConfigError, did_you_mean
from rcil_export.graph.shapes import InputShape, parse_shape

Precision = Literal["fp32", "fp16", "bf16", "int8"]
InputKind = Literal["uint8", "float"]
Output = Literal["mask", "confidence", "logits"]
Runtime = Literal["any", "cpu", "tensorrt"]
PRECISIONS: tuple[Precision, ...] = ("fp32", "fp16", "bf16", "int8")
RUNTIMES: tuple[Runtime, ...] = get_args(Runtime)
OUTPUTS: tuple[Output, ...] = ("mask", "confidence", "logits")
OPSETS = (18, 23)
"""First and last opset that can be written."""
DEFAULT_OPSETS: dict[str, int] = {"bf16": 22}
"""By precision, where 18 is not enough: ONNX has bf16 convs from opset 22 on."""
INPUT_NAME = "image"
INTERFACE_KEY = "rcil.interface"
"""Key in the ONNX file's metadata, beside that of the model's own metadata."""
Opset = Annotated[int, Field(ge=OPSETS[0], le=OPSETS[1])]


class Interface(BaseModel):
    """Input, outputs and numbers of an exported graph."""

    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)

    shape: InputShape
    input: InputKind = "uint8"
    """`uint8`: images [N, H, W, 3] as a camera gives them. `float`: [N, 3, H, W], already normalised."""
    outputs: tuple[Output, ...] = ("mask",)
    """`mask` [N, H, W]: class rows. `confidence` [N, H, W]: the probability of that class. `logits`
    [N, classes, H, W]."""
    precision: Precision = "fp32"
    opset: Opset = 18
    runtime: Runtime = "any"
    """What the graph is written for. `any` and `tensorrt`: the last upsampling works on planes [N, classes, H, W] and
    int8 is symmetric, which is right on every execution provider and for TensorRT. `cpu`: the last upsampling works
    channels-last and int8 has the form of ONNX Runtime's CPU kernels; faster there, and wrong on GPUs, whose Resize
    kernels take planes only."""
    folded: bool = True
    """Whether every RC block is one conv; a graph with both branches exists for comparison only."""

    @field_validator("outputs")
    @classmethod
    def _in_one_order(cls, outputs: tuple[Output, ...]) -> tuple[Output, ...]:
        if not outputs:
            raise ValueError("a graph needs an output")
        return tuple(name for name in OUTPUTS if name in outputs)


def parse_outputs(text: str) -> tuple[Output, ...]:
    """`mask,confidence` -> those names, checked."""
    names = [name.strip() for name in text.split(",") if name.strip()]
    for name in names:
        if name not in OUTPUTS:
            raise ConfigError(
                f"unknown output '{name}'", f"{did_you_mean(name, OUTPUTS)} The folder to write to is -o."
            )
    if not names:
        raise ConfigError("no output is named", f"Known: {', '.join(OUTPUTS)}.")
    return tuple(name for name in OUTPUTS if name in names)


def check_opset(opset: int) -> int:
    """The opset, if it can be written."""
    first, last = OPSETS
    if not first <= opset <= last:
        raise ConfigError(f"opset {opset} cannot be written", f"Choose one from {first} to {last}.")
    return opset


def make_interface(
    size: str | None,
    dynamic: str | None,
    batch: str,
    precision: str,
    outputs: str,
    kind: str,
    opset: int | None,
    runtime: str,
) -> Interface:
    """The interface for the options of these names; see `parse_shape` for the first three."""
    named = (("precision", precision, PRECISIONS), ("input", kind, get_args(InputKind)), ("runtime", runtime, RUNTIMES))
    for what, value, known in named:
        if value not in known:
            raise ConfigError(f"unknown {what} '{value}'", did_you_mean(value, known))
    return Interface.model_validate(
        {
            "shape": parse_shape(size, dynamic, batch),
            "input": kind,
            "outputs": parse_outputs(outputs),
            "precision": precision,
            "opset": check_opset(opset if opset is not None else DEFAULT_OPSETS.get(precision, 18)),
            "runtime": runtime,
        }
    )
