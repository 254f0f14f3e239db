"""The metadata that a model file carries. No torch here."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import BaseModel, Discriminator, Field, Tag, model_validator

from rcil import defaults
from rcil.core.errors import CheckpointError
from rcil.core.palette import Colour, colours_for
from rcil.model.adopted import AdoptedGraph
from rcil.model.architecture import Architecture, FrozenModel
from rcil.model.attached import AttachedArchitecture
from rcil.model.features import FeatureStatistics

FORMAT_VERSION = 1
IMAGENET_MEAN, IMAGENET_STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
LITE_MEAN, LITE_STD = (127 / 255,) * 3, (128 / 255,) * 3
CLASSIFIER_HINT = "Train it with `rcil classify` and export it with `rcil-export`; masks need a model of `rcil train`."
Triple = tuple[float, float, float]
Level = Annotated[float, Field(ge=-1e3, le=1e3)]
"""Mean of a colour channel divided by 255. Values far outside 0 to 1, such as infinity, mean a damaged file."""
Spread = Annotated[float, Field(ge=1e-6, le=1e3)]
Byte = Annotated[int, Field(ge=0, le=255)]


OWN, ATTACHED, ADOPTED = "own", "attached", "adopted"
"""Tags of the kinds of description; pydantic puts them into the locations of its errors."""


def _kind_of_network(document: Any) -> str:
    keys = document if isinstance(document, dict) else {}
    if isinstance(document, AdoptedGraph) or "graph_sha256" in keys:
        return ADOPTED
    return ATTACHED if isinstance(document, AttachedArchitecture) or "factory" in keys else OWN


AnyArchitecture = Annotated[
    Annotated[Architecture, Tag(OWN)]
    | Annotated[AttachedArchitecture, Tag(ATTACHED)]
    | Annotated[AdoptedGraph, Tag(ADOPTED)],
    Discriminator(_kind_of_network),
]
"""One of our own networks, one of another library, or an ONNX graph of another program."""


class ClassInfo(FrozenModel):
    """One class; its index in the class table is its classifier row."""

    name: Annotated[str, Field(min_length=1)]
    id: Annotated[int, Field(ge=0, le=65535)]
    """Value in masks, at most 16 bits."""
    colour: tuple[Byte, Byte, Byte]
    step: Annotated[int, Field(ge=0)]
    """The step that added the class."""


class LineageEntry(FrozenModel):
    """One step (or import) in the history of a model."""

    step: int
    source: str
    """What was done, for example `train` or `import`."""
    parent_sha256: str | None = None
    data_sha256: str | None = None
    config: dict[str, Any] = Field(default_factory=dict)
    seed: int | None = None
    versions: dict[str, str] = Field(default_factory=dict)
    metrics: dict[str, float] = Field(default_factory=dict)
    """Measurements: `training_images`, `held_out_images` and `norm_images` (which the norms of a folded start were
    fitted to) count images, `iou NAME` is the IoU of a class in percent, `drop NAME` the points that an old class
    lost."""


def recorded(request: BaseModel) -> dict[str, Any]:
    """A request as JSON-ready data, with paths reduced to their file names.

    Checkpoints travel to other machines, so they record what they were made from, not where it was stored. The same
    run gives the same checkpoint on every machine.
    """
    text = json.dumps(request.model_dump(), default=lambda value: value.name if isinstance(value, Path) else str(value))
    document: dict[str, Any] = json.loads(text)
    return document


class CostInfo(FrozenModel):
    """Cost of one image at `size`, for the stored model and for its folded form."""

    size: tuple[int, int]
    macs: int
    folded_parameters: int
    folded_macs: int


class Metadata(FrozenModel):
    """The JSON header of a checkpoint."""

    format_version: Annotated[int, Field(ge=1)] = FORMAT_VERSION
    kind: Literal["segmenter", "backbone", "classifier"] = "segmenter"
    """`backbone`: pretrained weights to start from, without head and classes. `classifier`: one label for a whole
    image, described by `ClassifierMetadata`."""
    architecture: AnyArchitecture
    classes: tuple[ClassInfo, ...] = ()
    mean: tuple[Level, Level, Level] = IMAGENET_MEAN
    std: tuple[Spread, Spread, Spread] = IMAGENET_STD
    """Inputs are (x / 255 - mean) / std."""
    colour_order: Literal["RGB", "BGR"] = "RGB"
    method: str = ""
    step: Annotated[int, Field(ge=0)] = 0
    lineage: tuple[LineageEntry, ...] = ()
    cost: CostInfo | None = None
    rejected: str | None = None
    """Why a check after training rejected the model for deployment; None if it was not rejected."""
    uncertain: str | None = None
    """Why a check after training could neither accept nor reject the model; None if it could."""
    features: Annotated[FeatureStatistics | None, Field(exclude=True)] = None
    """What later steps may know of the features of the classes. Only checkpoints have it: `model_dump` leaves it out,
    and `checkpoint_json` does not."""

    @model_validator(mode="before")
    @classmethod
    def _of_its_own_kind(cls, document: Any) -> Any:
        """Raise if a classifier is read by a program that expects a segmenter.

        pydantic passes a `CheckpointError` through unchanged, so the user does not see a validation error.
        """
        classifies = isinstance(document, dict) and document.get("kind") == "classifier"
        if classifies and not issubclass(cls, ClassifierMetadata):
            raise CheckpointError(
                "the model is a classifier of whole images, which does not output masks", CLASSIFIER_HINT
            )
        return document

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        if (self.kind == "backbone") != (not self.classes):
            raise ValueError("a segmenter or classifier has classes and a backbone has none")
        names = [c.name for c in self.classes]
        doubled = sorted({n for n in names if names.count(n) > 1})
        if doubled:
            raise ValueError(f"duplicate class names: {', '.join(doubled)}")
        ids = [c.id for c in self.classes]
        if len(set(ids)) != len(ids):
            raise ValueError("duplicate class ids")
        steps = [c.step for c in self.classes]
        if steps != sorted(steps) or (steps and steps[-1] > self.step):
            raise ValueError("the class table must be in the order of steps, none later than the model's step")
        if self.features is not None and len(self.features.counts) != len(self.classes):
            raise ValueError(f"{len(self.classes)} classes have {len(self.features.counts)} statistics of features")
        return self

    def checkpoint_json(self) -> str:
        """The metadata as a checkpoint stores it, with `features` unless they are those of fewer classes."""
        if self.features is None or len(self.features.counts) != len(self.classes):
            return self.model_dump_json()
        features = self.features.model_dump(exclude_none=True)
        return json.dumps({**self.model_dump(mode="json"), "features": features}, ensure_ascii=False)

    @property
    def names_by_step(self) -> list[list[str]]:
        """Class names of each step that added classes, in row order."""
        groups: dict[int, list[str]] = {}
        for c in self.classes:
            groups.setdefault(c.step, []).append(c.name)
        return list(groups.values())

    @property
    def training_scale(self) -> float:
        """Factor by which images were resized for the network in its last training; 1 if none is recorded."""
        for entry in reversed(self.lineage):
            section = entry.config.get("data")  # `rcil train` has it there, `rcil add-class` at the top
            found = entry.config.get("scale", section.get("scale") if isinstance(section, dict) else None)
            if isinstance(found, int | float) and 0 < found <= defaults.MAX_SCALE:
                return float(found)
        return 1.0


def scale_notice(models: Iterable[Metadata]) -> list[str]:
    """A line about the scale at which images are seen where the user names none; no line if it is 1."""
    scales = sorted({metadata.training_scale for metadata in models})
    if scales in ([], [1.0]):
        return []
    return [f"scale {' and '.join(f'{scale:g}' for scale in scales)} as in the model's training; change with --scale"]


class ClassifierMetadata(Metadata):
    """The header of a classifier of whole images: a backbone, the mean of its last map, and a head."""

    kind: Literal["segmenter", "backbone", "classifier"] = "classifier"
    architecture: Architecture
    head: Literal["linear", "cosine"]
    """`linear`: one group of rows per step. `cosine`: similarity to several proxies per class."""
    proxies: Annotated[int, Field(ge=1, le=1000)] = 1
    """Proxies per class of a cosine head."""
    size: Annotated[int, Field(ge=8)]
    """Height and width of the training images."""

    @model_validator(mode="after")
    def _classifies(self) -> Self:
        if self.kind != "classifier":
            raise ValueError(f"a {self.kind} is not described as a classifier")
        return self


def class_table(
    names_by_step: list[list[str]], colours: Callable[[list[str]], Iterable[Colour]] = colours_for
) -> tuple[ClassInfo, ...]:
    """A class table with ids in row order; `colours` gives the colours of all names, background first."""
    flat = [(step, name) for step, names in enumerate(names_by_step) for name in names]
    shown = colours([name for _, name in flat])
    return tuple(
        ClassInfo(name=name, id=index, colour=colour, step=step)
        for index, ((step, name), colour) in enumerate(zip(flat, shown, strict=True))
    )
