"""The request of `rcil add-class`, which is recorded next to the result."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Self

from pydantic import Field, ValidationError, model_validator

from rcil import defaults
from rcil.core.errors import ConfigError, did_you_mean
from rcil.core.files import is_free, sha256_of
from rcil.model.architecture import FrozenModel
from rcil.tasks.compatibility import check_augmentation
from rcil.tasks.task import Count, MethodSection, Positive, Scale, Side, TrainingSection, apply_override, explained
from rcil.training.run_record import check_record, write_record

RECORD = "add_class.yaml"
SECTIONS = ("training", "method")
"""Sections that overrides may change; everything else has its own option."""


class StepTraining(TrainingSection):
    """Schedule and optimiser of one step from site images.

    Both numbers of a pair are equal, because there is only one step.
    """

    epochs: tuple[Count, Count] = (defaults.EPOCHS, defaults.EPOCHS)
    lr: tuple[Positive, Positive] = (defaults.LR, defaults.LR)
    batch: Count = defaults.BATCH
    crop: Side = defaults.CROP
    workers: Annotated[int, Field(ge=0)] = defaults.WORKERS


class Request(FrozenModel):
    """The classes to add, the images, the method and the allowed forgetting."""

    model: Path
    """The checkpoint to start from."""
    data: Path
    """The site folder."""
    classes: tuple[str, ...]
    method: MethodSection = MethodSection(name=defaults.METHOD)
    training: StepTraining = StepTraining()
    scale: Scale = defaults.SCALE
    """Factor by which images are resized for the network."""
    max_drop: Annotated[float, Field(ge=0)] = defaults.MAX_DROP
    """Maximum drop in IoU points of a named old class."""
    min_new: Annotated[float, Field(ge=0, le=100)] = defaults.MIN_NEW
    """Minimum IoU in percent of a new class."""
    max_background_drop: Annotated[float, Field(ge=0)] | None = None
    """Maximum drop in IoU points of background; None: any."""
    seed: Annotated[int, Field(ge=0)] = defaults.SEED

    @model_validator(mode="after")
    def _possible(self) -> Self:
        check_augmentation(self.training.augmentation, self.scale)
        if self.training.held_out == 0:
            raise ValueError("training.held_out must be above 0: forgetting may be measured on the held-out images")
        return self


def step_request(
    model: str | Path,
    data: str | Path,
    classes: Sequence[str],
    *,
    method: str,
    options: Mapping[str, Any] | None = None,
    training: Mapping[str, Any],
    overrides: Sequence[str],
    **settings: float | None,
) -> Request:
    """The request that `rcil.add_class` and the command make of their options.

    Args:
        model: The checkpoint to start from.
        data: The site folder.
        classes: Names of the classes to add.
        method: Name of the method.
        options: Options of the method by name.
        training: Settings of `StepTraining`; `epochs` and `lr` are single numbers here.
        overrides: See `make_request`.
        settings: The fields `scale`, `max_drop`, `min_new`, `max_background_drop` and `seed` of the request.
    """
    pairs = {key: (training[key], training[key]) for key in ("epochs", "lr")}
    fields = {
        "model": Path(model),
        "data": Path(data),
        "classes": tuple(classes),
        "method": {"name": method, "options": dict(options or {})},
        "training": {**training, **pairs},
        **settings,
    }
    return make_request(fields, overrides)


def make_request(fields: dict[str, Any], overrides: Sequence[str] = ()) -> Request:
    """Validate the fields of a request.

    Args:
        fields: Fields of `Request`, with `training` and `method` as dictionaries.
        overrides: Dotted keys with YAML values, for example `training.momentum=0.8`.
    """
    method = {"name": defaults.METHOD, **fields.get("method", {})}
    document = {**fields, "training": dict(fields.get("training", {})), "method": method}
    for override in overrides:
        section = override.partition("=")[0].strip().partition(".")[0]
        if section not in SECTIONS:
            raise ConfigError(f"'{override}' changes neither training nor method", did_you_mean(section, SECTIONS))
        apply_override(document, override)
    try:
        return Request.model_validate(document)
    except ValidationError as error:
        raise explained(error, Path("add-class")) from error


def check_folder(output: Path, request: Request, *, resume: bool) -> None:
    """Raise for a folder that is in use, or that was started with another request."""
    record = output / RECORD
    if not record.exists() and not is_free(output):
        raise ConfigError(f"{output} is in use", "Name a folder that does not exist yet, or an empty one.")
    check_record(record, request, resume=resume, facts=_facts(request))


def record_request(output: Path, request: Request) -> None:
    """Write the request and the digest of the model that it starts from into the folder."""
    write_record(output / RECORD, request, facts=_facts(request))


def _facts(request: Request) -> dict[str, str]:
    return {"model_sha256": sha256_of(request.model)}
