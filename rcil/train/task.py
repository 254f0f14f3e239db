"""The task file: data, protocol, network, method and schedule of a run."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Literal, Self

import yaml
from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from rcil.architecture import Backbone, NormKind
from rcil.errors import ConfigError, did_you_mean

Positive = Annotated[float, Field(gt=0)]
Count = Annotated[int, Field(ge=1)]


class _Section(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)


class DataSection(_Section):
    """Where images and masks are."""

    kind: Literal["site", "voc", "ade", "cityscapes"] = "site"
    root: Path
    """Relative paths are relative to the task file."""
    train: str = "train"
    test: str = "val"
    """The split that results are reported on; never used to choose anything."""
    scale: Annotated[float, Field(gt=0, le=1)] = 1.0
    """Share of their size at which the network sees images; masks and results keep theirs."""


class ProtocolSection(_Section):
    """Which classes come when."""

    split: str | None = None
    """X-Y, for example 15-1."""
    steps: tuple[tuple[str, ...], ...] | None = None
    """Or the class names of each step, background in none of them: it is always there."""
    setting: Literal["overlapped", "disjoint"] = "overlapped"
    order: str | None = None
    """A class order that ships with the package, for example voc-b."""

    @model_validator(mode="after")
    def _one_way(self) -> Self:
        if (self.split is None) == (self.steps is None):
            raise ValueError("give either split (X-Y) or steps (lists of class names)")
        if self.order is not None and self.steps is not None:
            raise ValueError("order goes with split; steps has its own order")
        return self


class NetworkSection(_Section):
    """The network; see `Architecture`."""

    backbone: Backbone = "resnet101"
    width: Count = 64
    head_width: Count = 256
    output_stride: Literal[8, 16] = 16
    norm: NormKind = "batch"
    pretrained: Path | None = None
    """A backbone checkpoint made with `rcil import`."""


class MethodSection(_Section):
    """The method by name, and its options."""

    name: str = "rcil"
    options: dict[str, Any] = {}
    others: dict[str, dict[str, Any]] = {}
    """Options of other methods, for `rcil compare`."""


class TrainingSection(_Section):
    """Schedule and optimiser; pairs are (step 0, later steps). Defaults are the paper's for VOC."""

    epochs: tuple[Count, Count] = (30, 30)
    lr: tuple[Positive, Positive] = (0.02, 0.001)
    batch: Count = 24
    crop: Annotated[int, Field(ge=32)] = 512
    scale: tuple[Positive, Positive] = (0.5, 2.0)
    """Random resize of the crop's content, on top of `data.scale`."""
    momentum: Annotated[float, Field(ge=0, lt=1)] = 0.9
    weight_decay: Annotated[float, Field(ge=0)] = 1e-4
    power: Positive = 0.9
    """Of the polynomial decay, per iteration."""
    held_out: Annotated[float, Field(gt=0, lt=1)] = 0.2
    """Share of a step's training images that choose the best epoch."""
    workers: Annotated[int, Field(ge=0)] = 2
    """Processes that decode and augment."""
    precision: Literal["fp32", "bf16"] = "fp32"
    channels_last: bool = False
    """Keep channels innermost in memory: faster for EfficientNet and on recent GPUs."""
    save_every: Count = 200
    """Iterations between two savings of the resume state; every epoch saves too."""


class Task(_Section):
    """A whole run."""

    name: str = "task"
    seed: int = 0
    data: DataSection
    protocol: ProtocolSection
    network: NetworkSection = NetworkSection()
    method: MethodSection = MethodSection()
    training: TrainingSection = TrainingSection()


def load_task(path: Path, overrides: list[str] | None = None) -> Task:
    """Read a task file and apply `a.b=c` overrides; unknown keys get a suggestion.

    Args:
        path: A YAML file.
        overrides: Dotted keys with YAML values, for example `training.batch=8`.
    """
    try:
        document = yaml.safe_load(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"cannot read the task {path}", "Give a YAML file; the README shows one.") from error
    except yaml.YAMLError as error:
        raise ConfigError(
            f"{path} is not YAML: {str(error).splitlines()[0]}", "Check indentation and colons."
        ) from error
    if not isinstance(document, dict):
        raise ConfigError(f"{path} is not a task", "A task has the sections data, protocol, network, method, training.")
    for override in overrides or []:
        _apply(document, override)
    try:
        task = Task.model_validate(document)
    except ValidationError as error:
        raise _explained(error, path) from error
    return task.model_copy(
        update={"data": _anchored(task.data, path), "network": _anchored_network(task.network, path)}
    )


def _apply(document: dict[str, Any], override: str) -> None:
    """Set one dotted key."""
    key, equals, text = override.partition("=")
    if not equals or not key.strip():
        raise ConfigError(f"'{override}' is not an override", "Write key=value, for example training.batch=8.")
    *sections, last = key.strip().split(".")
    place = document
    for section in sections:
        inner = place.setdefault(section, {})
        if not isinstance(inner, dict):
            raise ConfigError(f"'{section}' in '{override}' is not a section", "Check the key.")
        place = inner
    try:
        place[last] = yaml.safe_load(text)
    except yaml.YAMLError as error:
        raise ConfigError(f"the value in '{override}' is not YAML", "Quote it.") from error


def _explained(error: ValidationError, path: Path) -> ConfigError:
    """The first thing that is wrong, in the user's terms."""
    first = error.errors()[0]
    where = ".".join(map(str, first["loc"]))
    if first["type"] == "extra_forbidden":
        section: Any = Task
        for part in first["loc"][:-1]:
            section = section.model_fields[part].annotation
        return ConfigError(f"{path}: unknown key '{where}'", did_you_mean(str(first["loc"][-1]), section.model_fields))
    return ConfigError(f"{path}: {where or 'task'}: {first['msg']}", "Correct the value.")


def _anchored(section: DataSection, path: Path) -> DataSection:
    return section.model_copy(update={"root": path.parent / section.root})


def _anchored_network(section: NetworkSection, path: Path) -> NetworkSection:
    pretrained = None if section.pretrained is None else path.parent / section.pretrained
    return section.model_copy(update={"pretrained": pretrained})
