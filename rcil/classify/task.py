"""The task file of `rcil classify`: data, protocol, network, method, memory and schedule."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import Field, ValidationError, model_validator

from rcil import defaults
from rcil.core.errors import ConfigError
from rcil.model.architecture import Channels, Depth, FrozenModel
from rcil.presets import preset_names, preset_text
from rcil.tasks.limits import MAX_LR, MAX_SIDE, MAX_WORKERS
from rcil.tasks.load import apply_override, explained, origins_in, parse_document
from rcil.tasks.task import DeviceName

Positive = Annotated[float, Field(gt=0)]
Count = Annotated[int, Field(ge=1, le=1_000_000)]
Rate = Annotated[float, Field(gt=0, le=MAX_LR["sgd"])]
PRESETS = "classify"
"""The folder of the presets of `rcil classify`."""
MethodName = Literal["eeil", "podnet"]


class DataSection(FrozenModel):
    """The dataset."""

    kind: Literal["digits", "folder"] = "digits"
    """`digits`: scikit-learn's handwritten digits, 1797 real images of 8x8. `folder`: `train/CLASS/*.png` and
    `val/CLASS/*.png`."""
    root: Path | None = None
    """Folder of the images for kind `folder`, relative to the task file."""
    size: Annotated[int, Field(ge=8, le=MAX_SIDE)] = 32
    """Height and width to which images are resized."""
    evaluate: Literal["test", "held_out"] = "test"
    """`held_out`: evaluate on a fifth of the training images instead of the test images, to tune settings."""

    @model_validator(mode="after")
    def _one_source(self) -> Self:
        if (self.kind == "folder") != (self.root is not None):
            raise ValueError("kind folder needs root, and other kinds must not have it")
        return self


class ProtocolSection(FrozenModel):
    """The classes of each step; their order is drawn from the seed."""

    first: Annotated[int, Field(ge=2)] | None = None
    """Number of classes in step 0; by default half of all."""
    later_steps: Annotated[int, Field(ge=0)] = 5
    """Number of later steps, over which the remaining classes are divided evenly."""


class NetworkSection(FrozenModel):
    """The backbone; see `Architecture`."""

    backbone: Literal["resnet18", "resnet34", "resnet50", "resnet101"] = "resnet18"
    blocks: tuple[Depth, Depth, Depth, Depth] | None = None
    """Residual blocks of the four stages where they differ from the backbone's own."""
    width: Channels = 16
    output_stride: Literal[8, 16, 32] = 16
    """32, without dilation, is usual for images of 224 pixels; small images need a smaller stride."""


class MethodSection(FrozenModel):
    """The method, with or without RC, and its options."""

    name: MethodName = "eeil"
    rc: bool = True
    """Use two branches in every 3x3 conv, which are merged at the start of a later step."""
    options: dict[str, Any] = Field(default_factory=dict)
    others: dict[MethodName, dict[str, Any]] = Field(default_factory=dict)
    """Options of other methods by name, for `--compare`."""


class MemorySection(FrozenModel):
    """Images of old classes that are kept for replay."""

    per_class: Count = 20


class TrainingSection(FrozenModel):
    """Schedule and optimiser (SGD with Nesterov momentum); pairs are (step 0, later steps)."""

    iterations: tuple[Count, Count] = (300, 200)
    tune_iterations: Annotated[int, Field(ge=0, le=1_000_000)] = 50
    """Fine-tuning iterations on the balanced memory at the end of every later step."""
    lr: tuple[Rate, Rate] = (0.1, 0.05)
    batch: Annotated[int, Field(ge=2, le=65_536)] = 64
    momentum: Annotated[float, Field(ge=0, lt=1)] = 0.9
    weight_decay: Annotated[float, Field(ge=0, le=1)] = 5e-4
    power: Annotated[float, Field(gt=0, le=10)] = 0.9
    """Exponent of the polynomial learning rate decay, applied per iteration."""
    settle: Annotated[int, Field(ge=0, le=10_000)] = 0
    """Number of batches on which batch norm is recalibrated after training, with branches mixed as in evaluation."""
    shift: Annotated[int, Field(ge=0)] = 2
    """Maximum random shift of training images in pixels; the border is replicated."""
    flip: bool = False
    """Flip half of the training images horizontally; not for digits."""
    workers: Annotated[int, Field(ge=0, le=MAX_WORKERS)] = 2
    """Number of processes that read images from disk. The batches do not depend on it."""
    device: DeviceName = "auto"
    """`auto`, `cpu`, `cuda` or `cuda:N`. `auto` uses a GPU if torch finds one. A run may be continued on another
    device."""


class ClassifyTask(FrozenModel):
    """A complete classification run."""

    name: str = "task"
    seed: Annotated[int, Field(ge=0, le=defaults.MAX_SEED)] = 0
    data: DataSection = DataSection()
    protocol: ProtocolSection = ProtocolSection()
    network: NetworkSection = NetworkSection()
    method: MethodSection = MethodSection()
    memory: MemorySection = MemorySection()
    training: TrainingSection = TrainingSection()

    @model_validator(mode="after")
    def _possible(self) -> Self:
        if 2 * self.training.shift >= self.data.size:
            raise ValueError(f"training.shift {self.training.shift} is too large for images of {self.data.size} pixels")
        return self


def load_classify_task(path: Path, overrides: list[str] | None = None) -> ClassifyTask:
    """Read a task file or a preset and apply `a.b=c` overrides; unknown keys get a suggestion.

    Args:
        path: A YAML file, or the name of a preset if there is no such file.
        overrides: Dotted keys with YAML values, for example `method.rc=false`.
    """
    preset = not path.is_file() and str(path) in preset_names(PRESETS)
    try:
        text = preset_text(str(path), PRESETS) if preset else path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        hint = f"Give a YAML file (docs/classify.md shows one) or a preset: {', '.join(preset_names(PRESETS))}."
        raise ConfigError(f"cannot read the task {path}", hint) from error
    document = parse_document(text, path, ", ".join(ClassifyTask.model_fields))
    here = preset
    for override in overrides or []:
        apply_override(document, override)
        here = here or override.partition("=")[0].strip() == "data.root"
    try:
        task = ClassifyTask.model_validate(document)
    except ValidationError as error:
        raise explained(error, path, ClassifyTask, origins_in(text, path, overrides)) from error
    if task.data.root is None:
        return task
    root = (Path() if here else path.parent).absolute() / task.data.root
    return task.model_copy(update={"data": task.data.model_copy(update={"root": root})})
