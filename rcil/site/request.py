"""The request of `rcil add-class`, which is recorded next to the result."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Self

from pydantic import BeforeValidator, Field, ValidationError, model_validator

from rcil import defaults
from rcil.core.documents import parse_yaml
from rcil.core.errors import ConfigError, did_you_mean
from rcil.core.files import is_free, sha256_of
from rcil.hardware.processes import device_for
from rcil.model.architecture import FrozenModel
from rcil.model.header import read_header
from rcil.site.recipe import Choice, derive
from rcil.tasks.compatibility import check_augmentation
from rcil.tasks.load import apply_override, explained
from rcil.tasks.task import Count, MethodSection, Scale, TrainingSection
from rcil.training.run_record import check_record, write_record

RECORD = "add_class.yaml"
SECTIONS = ("training", "method")
"""Sections that overrides may change; everything else has its own option."""


def _pair(value: Any) -> Any:
    return (value, value) if isinstance(value, int | float | str) else value


Rate = Annotated[float, Field(gt=0, le=defaults.MAX_LR)]


class StepTraining(TrainingSection):
    """Schedule and optimiser of one step from site images.

    Both numbers of a pair are equal, because there is only one step; a single number stands for both.
    """

    epochs: Annotated[tuple[Count, Count], BeforeValidator(_pair)] = (30, 30)
    lr: Annotated[tuple[Rate, Rate], BeforeValidator(_pair)] = (0.001, 0.001)
    batch: Annotated[int, Field(ge=1, le=defaults.MAX_BATCH)] = 8
    crop: Annotated[int, Field(ge=32, le=defaults.MAX_CROP)] = 512
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
    seed: Annotated[int, Field(ge=0, le=defaults.MAX_SEED)] = defaults.SEED
    minutes: Annotated[float, Field(gt=0, le=defaults.MAX_MINUTES)] | None = None
    """Time budget of the whole command; None: the default of the device."""
    careful: bool | None = None
    """Whether settings are those for images that show few old classes; see `rcil.site.recipe.careful`."""
    derived: dict[str, str] = Field(default_factory=dict)
    """Settings that the user did not give, as dotted keys, with the reason of each value."""

    @model_validator(mode="after")
    def _possible(self) -> Self:
        check_augmentation(self.training.augmentation, self.scale)
        if self.training.held_out == 0:
            raise ValueError("training.held_out must be above 0: forgetting may be measured on the held-out images")
        if self.minutes is not None and "training.epochs" not in self.derived:
            raise ValueError("minutes and epochs both set the length of the training: give one of them")
        return self

    def with_values(self, values: Mapping[str, Any], derived: Mapping[str, str]) -> Request:
        """This request with other values of dotted keys, and with other reasons."""
        document = self.model_dump()
        for key, value in values.items():
            _set(document, key, value)
        return Request.model_validate({**document, "derived": dict(derived)})

    def with_choices(self, choices: Mapping[str, Choice]) -> Request:
        """This request with chosen values of dotted keys."""
        reasons = {key: choice.reason for key, choice in choices.items()}
        return self.with_values({key: choice.value for key, choice in choices.items()}, {**self.derived, **reasons})

    def value(self, key: str) -> Any:
        """The value of a dotted key; None for an option of the method that is not set."""
        found: Any = self.model_dump()
        for part in key.split("."):
            found = found.get(part)
        return found


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
    """The request that `rcil.add_class` and the command make of their options; see `rcil.site.recipe` for the rest.

    Args:
        model: The checkpoint to start from.
        data: The site folder.
        classes: Names of the classes to add.
        method: Name of the method.
        options: Options of the method by name.
        training: Settings of `StepTraining`; those that are None are derived.
        overrides: See `make_request`.
        settings: The fields `scale`, `minutes`, `max_drop`, `min_new`, `max_background_drop` and `seed` of the request;
            None is the default.
    """
    fields = {
        "model": Path(model),
        "data": Path(data),
        "classes": tuple(classes),
        "method": {"name": method, "options": dict(options or {})},
        "training": _given(training),
        **_given(settings),
    }
    document = _document(fields, overrides)
    device = document["training"].get("device", "auto") if isinstance(document["training"], dict) else None
    if isinstance(device, str):
        device_for(device)  # before the checkpoint is read
    choices = derive(read_header(Path(model)).metadata, document)
    for key, choice in choices.items():
        _set(document, key, choice.value)
    document["derived"] = {key: choice.reason for key, choice in choices.items()}
    return _validated(document)


def make_request(fields: dict[str, Any], overrides: Sequence[str] = ()) -> Request:
    """Validate the fields of a request, of which nothing is derived.

    Args:
        fields: Fields of `Request`, with `training` and `method` as dictionaries.
        overrides: Dotted keys with YAML values, for example `training.momentum=0.8`.
    """
    return _validated(_document(fields, overrides))


def _document(fields: Mapping[str, Any], overrides: Sequence[str]) -> dict[str, Any]:
    """The fields with overrides; the sections are copies."""
    method = {"name": defaults.METHOD, **fields.get("method", {})}
    document = {**fields, "training": dict(fields.get("training", {})), "method": method}
    for override in overrides:
        section = override.partition("=")[0].strip().partition(".")[0]
        if section not in SECTIONS:
            raise ConfigError(f"'{override}' changes neither training nor method", did_you_mean(section, SECTIONS))
        apply_override(document, override)
    return document


def _validated(document: dict[str, Any]) -> Request:
    try:
        return Request.model_validate(document)
    except ValidationError as error:
        raise explained(error, Path("add-class"), Request) from error


def _given(settings: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in settings.items() if value is not None}


def _set(document: dict[str, Any], key: str, value: Any) -> None:
    """Set the value of a dotted key."""
    *sections, last = key.split(".")
    for section in sections:
        document = document.setdefault(section, {})
    document[last] = value


def resumed(output: Path, request: Request) -> Request:
    """The request with the derived values of the run in the folder, if there is one.

    A value that the user gives now stays; `check_folder` reports where it differs from that of the run.
    """
    try:
        recorded = Request.model_validate(_without_facts(parse_yaml((output / RECORD).read_text(encoding="utf-8"))))
        keys = {key for key in recorded.derived if key in request.derived or request.value(key) is None}
        return request.with_values({key: recorded.value(key) for key in keys}, recorded.derived)
    except (OSError, ValueError):
        return request  # there is no run, or one of another request, which `check_folder` reports


def _without_facts(document: Any) -> Any:
    return {k: v for k, v in document.items() if k in Request.model_fields} if isinstance(document, dict) else document


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
