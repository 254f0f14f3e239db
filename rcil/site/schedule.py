"""The length of a step: from the images, the size of the new class, and the time that the machine needs.

Everything here is a pure function of numbers; `rcil.site.trial` measures them.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

from rcil import defaults
from rcil.core.errors import TrainingError
from rcil.methods.pixels import DENSE_IMAGES
from rcil.site.recipe import LATER, Choice, careful
from rcil.site.request import Request
from rcil.training.estimate import duration
from rcil.training.loop import looked_at

VIEWS = (20, 40)
"""How often every image is seen: for a class that covers `SHARES[0]` of its images or more, and for small ones."""
SHARES = (0.1, 0.01)
MIN_ITERATIONS, MAX_ITERATIONS = 250, 800
"""The site recipe trains later steps for 800 iterations."""
MIN_USEFUL = 30
"""With fewer iterations a new class is not learned."""
MARGIN = 0.9
"""Share of the budget that is planned for, since the speed of a machine varies."""


class BudgetError(TrainingError):
    """The given minutes are too short on this machine.

    Args:
        minutes: Enough minutes.
        message: What does not fit.
        hint: What to do about it.
    """

    def __init__(self, minutes: int, message: str, hint: str) -> None:
        super().__init__(message, hint)
        self.minutes = minutes


@dataclass(frozen=True)
class Amounts:
    """What there is to process."""

    images: int
    """Training images."""
    held_out: int
    evaluated: int
    """Images on which the old and the new model are compared."""
    share: float
    """Share of the pixels of its training images that the smallest new class covers."""


@dataclass(frozen=True)
class Costs:
    """Seconds that the parts of a run take on this machine."""

    iteration: float
    looked: float
    """One whole image before or after the training."""
    looks: int
    """How often the method looks at whole images, before the training and after it."""
    fitted: float
    """What the method fits to whole images, before and after the training, per image."""
    validated: float
    """One image of a validation."""
    compared: float
    """One image of the final comparison of both models."""
    spent: float = 0.0
    """Seconds since the command was started."""


@dataclass(frozen=True)
class Effort:
    """How much is done beside the iterations."""

    finishing_images: int
    epochs: int
    """Every epoch ends with a validation."""
    validate_images: int


EFFORTS = (Effort(200, 4, 100), Effort(100, 2, 50), Effort(50, 2, 25), Effort(25, 1, 10))
"""The first one whose share of the time is at most `MAX_EFFORT` is used, otherwise the last."""
MAX_EFFORT = 0.35


@dataclass(frozen=True)
class Schedule:
    """The chosen schedule."""

    epochs: int
    epoch_images: int | None
    effort: Effort
    iterations: int
    wanted: int
    """Iterations that the images call for."""
    allowed: int | None
    """Iterations that the budget allows; None without a budget."""
    seconds: float | None
    """Estimated time of the whole command; None if nothing was measured."""

    @property
    def limited(self) -> bool:
        """Whether the budget allows fewer iterations than the images call for."""
        return self.allowed is not None and self.allowed < self.wanted


def wanted_iterations(images: int, batch: int, share: float) -> int:
    """Iterations that a step should have without a time limit.

    Every image is seen 20 times if the smallest new class covers a tenth of its images or more, 40 times if it covers a
    hundredth or less, and in between by the logarithm of its share. Few images need iterations too: at least 250, and
    up to 500 for small classes. 800 are enough for any number of images.
    """
    large, small = (math.log(limit) for limit in SHARES)
    smallness = min(1.0, max(0.0, (large - math.log(max(share, 1e-9))) / (large - small)))
    views = VIEWS[0] + smallness * (VIEWS[1] - VIEWS[0])
    least = MIN_ITERATIONS * views / VIEWS[0]
    return math.ceil(min(MAX_ITERATIONS, max(least, images * views / batch)))


def fit(request: Request, amounts: Amounts, costs: Costs | None, budget: float | None) -> Schedule:
    """The schedule of a request: the given one, or as long as the images call for and the budget allows.

    A given budget that is too short is an error. The default one is exceeded instead, if necessary.

    Args:
        request: The request, with the final crop.
        amounts: What there is to process.
        costs: What it costs; None if it was not measured, which needs `budget` to be None.
        budget: Seconds for the whole command; None without a limit.
    """
    settings = request.training
    wanted = wanted_iterations(amounts.images, settings.batch, amounts.share)
    if "training.epochs" not in request.derived:
        effort = _possible(Effort(settings.finishing_images, settings.epochs[LATER], amounts.held_out), request)
        iterations = effort.epochs * _per_epoch(request, amounts)
        seconds = _total(request, amounts, costs, effort, iterations)
        return Schedule(effort.epochs, settings.epoch_images, effort, iterations, wanted, None, seconds)
    efforts = [_possible(effort, request) for effort in EFFORTS]
    if costs is None or budget is None:
        return _divided(request, amounts, costs, efforts[0], wanted, wanted, None)
    left = MARGIN * budget - _unavoidable(amounts, costs)
    affordable = (e for e in efforts if _effort_seconds(request, amounts, costs, e) <= MAX_EFFORT * left)
    effort = next(affordable, efforts[-1])
    allowed = math.floor((left - _effort_seconds(request, amounts, costs, effort)) / costs.iteration)
    if allowed < MIN_USEFUL and request.minutes is not None:
        raise _too_short(request, amounts, _total(request, amounts, costs, effort, MIN_USEFUL) or 0, costs)
    iterations = max(MIN_USEFUL, min(wanted, allowed))
    schedule = _divided(request, amounts, costs, effort, iterations, wanted, max(0, allowed))
    if request.minutes is not None and schedule.iterations > max(allowed, iterations + effort.epochs):
        raise TrainingError(
            f"an epoch of {schedule.epoch_images or amounts.images} images does not fit into {request.minutes:g} min",
            "Use a larger --minutes, or leave out training.epoch_images.",
        )
    return schedule


def _possible(effort: Effort, request: Request) -> Effort:
    """The effort with the numbers of images that the request gives."""
    given = {
        name: value
        for name in ("finishing_images", "validate_images")
        if f"training.{name}" not in request.derived and (value := getattr(request.training, name)) is not None
    }
    return replace(effort, **given)


def _per_epoch(request: Request, amounts: Amounts) -> int:
    """Iterations per epoch of the request."""
    return max(1, (request.training.epoch_images or amounts.images) // request.training.batch)


def _divided(
    request: Request,
    amounts: Amounts,
    costs: Costs | None,
    effort: Effort,
    iterations: int,
    wanted: int,
    allowed: int | None,
) -> Schedule:
    """Divide iterations into epochs; a given number of images per epoch determines the number of epochs."""
    images: int | None
    if "training.epoch_images" in request.derived:
        per_epoch = max(math.ceil(MIN_USEFUL / effort.epochs), iterations // effort.epochs)
        images = per_epoch * request.training.batch
    else:
        per_epoch, images = _per_epoch(request, amounts), request.training.epoch_images
        effort = replace(effort, epochs=max(1, iterations // per_epoch))
    total = effort.epochs * per_epoch
    seconds = _total(request, amounts, costs, effort, total)
    return Schedule(effort.epochs, images, effort, total, wanted, allowed, seconds)


def _unavoidable(amounts: Amounts, costs: Costs) -> float:
    """Seconds of the checks and of the final comparison."""
    return costs.spent + amounts.evaluated * costs.compared


def _effort_seconds(request: Request, amounts: Amounts, costs: Costs, effort: Effort) -> float:
    """Seconds of what is done beside the iterations, without the comparison."""
    count = len(looked_at(amounts.images, effort.finishing_images))
    looked = costs.looks * count * costs.looked + min(count, DENSE_IMAGES) * costs.fitted
    validations = sum(request.training.validates(epoch, effort.epochs) for epoch in range(1, effort.epochs + 1))
    images = min(amounts.held_out, effort.validate_images)
    return looked + (validations + bool(validations)) * images * costs.validated  # once more to complete the masks


def _total(request: Request, amounts: Amounts, costs: Costs | None, effort: Effort, iterations: int) -> float | None:
    """Seconds of the whole command."""
    if costs is None:
        return None
    beside = _unavoidable(amounts, costs) + _effort_seconds(request, amounts, costs, effort)
    return beside + iterations * costs.iteration


def _too_short(request: Request, amounts: Amounts, least: float, costs: Costs) -> BudgetError:
    given = request.minutes or 0.0
    minutes = max(math.ceil(least / MARGIN / 60), math.floor(given) + 1)
    return BudgetError(
        minutes,
        f"{given:g} min are too short: the checks, {MIN_USEFUL} iterations of {costs.iteration:.2g} s and the "
        f"comparison of both models on {amounts.evaluated} images take about {duration(least)}",
        f"Use --minutes {minutes} or more, or a --crop below {request.training.crop}.",
    )


def with_crop(request: Request, crop: int) -> Request:
    """The request with crops that fit into the images."""
    if crop == request.training.crop:
        return request
    return request.with_choices({"training.crop": Choice(crop, "the size of the images")})


def with_care(request: Request, hidden: int, old: int) -> Request:
    """The request with the settings of a careful step, if the images call for them; see `rcil.site.recipe.careful`."""
    return request.with_choices(careful(request.derived, request.value, request.method.name, hidden, old))


def applied(request: Request, schedule: Schedule) -> Request:
    """The request with the chosen schedule, and with the reason of each value."""
    if "training.epochs" not in request.derived:
        return request
    limit = "limited by the time budget" if schedule.limited else "enough for these images"
    amount = "by the time budget" if schedule.limited else "default"
    chosen: dict[str, Choice] = {
        "training.epochs": Choice(schedule.epochs, f"{schedule.iterations} iterations, {limit}"),
        "training.epoch_images": Choice(schedule.epoch_images, f"{schedule.iterations} iterations, {limit}"),
        "training.validate_images": Choice(schedule.effort.validate_images, amount),
        "training.finishing_images": Choice(schedule.effort.finishing_images, amount),
        "training.warmup": Choice(
            request.training.warmup * schedule.epochs, request.derived.get("training.warmup", "")
        ),
    }
    return request.with_choices({key: choice for key, choice in chosen.items() if key in request.derived})


def default_budget(request: Request, device: str) -> float | None:
    """Seconds for the command: the given minutes, ten minutes on a CPU, no limit on a GPU or with given epochs."""
    if "training.epochs" not in request.derived:
        return None
    minutes = request.minutes or (defaults.CPU_MINUTES if device == "cpu" else None)
    return None if minutes is None else 60 * minutes


def summary(request: Request, schedule: Schedule, budget: float | None) -> str:
    """One line: what was chosen, where it comes from, how long it takes, and how to change it."""
    training = request.training
    shown = {
        "scale": f"scale {request.scale:g}",
        "training.crop": f"crop {training.crop}",
        "training.batch": f"batch {training.batch}",
        "training.lr": f"{training.optimiser} with lr {training.lr[LATER]:g}",
    }
    groups: dict[str, list[str]] = {}
    for key, text in shown.items():
        groups.setdefault(request.derived.get(key, "given"), []).append(text)
    texts = [f"{', '.join(found)} ({reason})" for reason, found in groups.items()]
    length = f"{schedule.iterations} iterations"
    if schedule.seconds is not None:
        length += f", about {duration(schedule.seconds)}"
    return "; ".join([*texts, length + _limit(schedule, budget)])


def _limit(schedule: Schedule, budget: float | None) -> str:
    """What the budget has to do with the number of iterations."""
    if budget is None or schedule.allowed is None:
        return ""
    minutes = f"--minutes {budget / 60:g}"
    if schedule.allowed < MIN_USEFUL:
        return f", the least that can teach a class; {schedule.wanted} are better, with a larger --minutes"
    if schedule.limited:
        return f", all that {minutes} allows; {schedule.wanted} are better, with a larger --minutes"
    return f" ({minutes} allows {schedule.allowed}); change with --minutes"


def recipe_document(request: Request) -> dict[str, dict[str, Any]]:
    """Value and reason of every setting by dotted key, JSON-ready."""
    document = request.model_dump(mode="json", include={"scale", "minutes"})
    settings = {f"training.{key}": value for key, value in request.training.model_dump(mode="json").items()}
    options = {f"method.options.{key}": value for key, value in request.method.options.items()}
    standard = {f"training.{name}": field.default for name, field in type(request.training).model_fields.items()}
    standard["scale"] = defaults.SCALE
    found = {}
    for key, value in {**document, **settings, **options}.items():
        is_standard = value is None or (key in standard and request.value(key) == standard[key])
        found[key] = {"value": value, "reason": request.derived.get(key, "default" if is_standard else "given")}
    return found
