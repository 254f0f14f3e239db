"""The inputs and outputs of an exported graph, as its file describes them. No torch here: serving reads it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Final, Literal, get_args

from pydantic import Field, field_validator

from rcil.core.documents import comma_separated
from rcil.core.errors import ConfigError, did_you_mean
from rcil.model.architecture import FrozenModel
from rcil_export.graph.shapes import InputShape, parse_shape

Precision = Literal["fp32", "fp16", "bf16", "int8"]
InputKind = Literal["uint8", "float"]
Output = Literal["mask", "confidence", "logits"]
Runtime = Literal["any", "cpu", "tensorrt"]
PRECISIONS: tuple[Precision, ...] = ("fp32", "fp16", "bf16", "int8")
RUNTIMES: tuple[Runtime, ...] = get_args(Runtime)
OUTPUTS: tuple[Output, ...] = ("mask", "confidence", "logits")
DEFAULT_BATCH: Final = 1
DEFAULT_PRECISION: Final = "fp32"
DEFAULT_OUTPUT: Final = "mask"
DEFAULT_INPUT: Final = "uint8"
DEFAULT_RUNTIME: Final = "any"
OPSETS = (18, 23)
"""First and last opset that can be written."""
DEFAULT_OPSETS: dict[str, int] = {"bf16": 22}
"""By precision, where 18 is not enough: ONNX has bf16 convs from opset 22 on."""
INPUT_NAME = "image"
INTERFACE_KEY = "rcil.interface"
"""Key in the ONNX file's metadata, beside that of the model's own metadata."""
Opset = Annotated[int, Field(ge=OPSETS[0], le=OPSETS[1])]


class GraphInterface(FrozenModel):
    """Input, outputs and numbers of an exported graph; each kind of network has a subclass."""

    shape: InputShape
    input: InputKind = DEFAULT_INPUT
    """`uint8`: images [N, H, W, 3] as a camera gives them. `float`: [N, 3, H, W], already normalised."""
    outputs: tuple[str, ...]
    precision: Precision = DEFAULT_PRECISION
    opset: Opset = 18

    @property
    def for_cpu(self) -> bool:
        """Whether the graph has the form that is faster on CPUs and wrong on GPUs."""
        return False

    @property
    def shows_branches(self) -> bool:
        """Whether RC blocks are written with both branches, for comparison only."""
        return False


class Interface(GraphInterface):
    """What the graph of a segmenter takes and gives."""

    outputs: tuple[Output, ...] = (DEFAULT_OUTPUT,)
    """`mask` [N, H, W]: class rows. `confidence` [N, H, W]: the probability of that class. `logits`
    [N, classes, H, W]."""
    runtime: Runtime = DEFAULT_RUNTIME
    """What the graph is written for. `any` and `tensorrt`: the last upsampling works on planes [N, classes, H, W] and
    int8 is symmetric, which is right on every execution provider and for TensorRT. `cpu`: the last upsampling works
    channels-last and int8 has the form of ONNX Runtime's CPU kernels; faster there, and wrong on GPUs, whose Resize
    kernels take planes only."""
    folded: bool = True
    """Whether every RC block is one conv; a graph with both branches exists for comparison only."""

    @property
    def for_cpu(self) -> bool:
        """See `runtime`."""
        return self.runtime == "cpu"

    @property
    def shows_branches(self) -> bool:
        """See `folded`."""
        return not self.folded

    @field_validator("outputs")
    @classmethod
    def _in_one_order(cls, outputs: tuple[Output, ...]) -> tuple[Output, ...]:
        if not outputs:
            raise ValueError("a graph needs an output")
        return tuple(name for name in OUTPUTS if name in outputs)


class ClassifierInterface(GraphInterface):
    """What the graph of a classifier of whole images takes and gives."""

    outputs: tuple[Literal["label"], Literal["scores"]] = ("label", "scores")
    """`label` [N]: the class row with the largest score. `scores` [N, classes]: logits, or scaled similarities."""
    precision: Literal["fp32"] = "fp32"
    folded: Literal[True] = True


def parse_outputs(text: str) -> tuple[Output, ...]:
    """`mask,confidence` -> those names, checked."""
    names = comma_separated(text)
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


@dataclass(frozen=True)
class GraphOptions:
    """The options about a graph as the command line writes them; `make_interface` reads them."""

    size: str | None = None
    dynamic: str | None = None
    batch: str = str(DEFAULT_BATCH)
    precision: str = DEFAULT_PRECISION
    outputs: str = DEFAULT_OUTPUT
    input: str = DEFAULT_INPUT
    opset: int | None = None
    runtime: str = DEFAULT_RUNTIME


def make_interface(options: GraphOptions) -> Interface:
    """The interface of a segmenter's graph that the options ask for; see `parse_shape` for the first three."""
    named = {"precision": PRECISIONS, "input": get_args(InputKind), "runtime": RUNTIMES}
    for what, known in named.items():
        value = getattr(options, what)
        if value not in known:
            raise ConfigError(f"unknown {what} '{value}'", did_you_mean(value, known))
    opset = options.opset if options.opset is not None else DEFAULT_OPSETS.get(options.precision, 18)
    return Interface.model_validate(
        {
            "shape": parse_shape(options.size, options.dynamic, options.batch),
            "input": options.input,
            "outputs": parse_outputs(options.outputs),
            "precision": options.precision,
            "opset": check_opset(opset),
            "runtime": options.runtime,
        }
    )
