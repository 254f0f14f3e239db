"""Settings of a step that the user did not give: from the checkpoint's history, or else from the site recipe.

Everything here is a pure function. `rcil.site.schedule` chooses the length of the training, which also depends on the
images and on the speed of the machine.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields
from statistics import median
from typing import Any, Literal, NamedTuple

from pydantic import ValidationError

from rcil import defaults
from rcil.core.errors import ConfigError
from rcil.methods import METHODS, make_method
from rcil.model.metadata import LineageEntry, Metadata
from rcil.tasks.recipes import SITE_TRAINING
from rcil.tasks.task import TrainingSection

Optimiser = Literal["sgd", "adamw"]
LATER = 1
"""Index of later steps in the pairs of a task."""
OPTIMISATION = ("classifier_lr", "backbone_lr", "weight_decay", "momentum", "power", "ema")
"""Settings that suit one optimiser, like `lr` and `warmup`."""
INHERITED = (
    *("batch", "crop", "optimiser", *OPTIMISATION, "class_weights", "freeze_stages", "settle"),
    *("augmentation", "scale", "jitter", "focus", "oversample", "channels_last"),
)
OPTIONS: dict[Optimiser, dict[str, float | bool]] = {
    "sgd": {},
    "adamw": {"distillation": 1.0, "gamma": 0.001, "fuse": False},
}
"""Options of RCIL and RCIL+ by optimiser. The paper's (lambda 100, gamma 0.01), the defaults of the methods, are
for SGD. With AdamW and steps of some tens of iterations they teach almost nothing; this pair was the best of seven, see
docs/results/small/ablation-lambda-gamma.md. Fusing with the old weights takes away more of the new class than it keeps
of the old ones: cars, added to six classes of CamVid with 120 images, reach 63.6 instead of 66.8 IoU with it, while the
old classes lose 0.3 instead of 0.4 points on average."""
STRICT_LR: dict[Optimiser, float] = {"sgd": 0.02, "adamw": 0.01}
"""Learning rates of `strict` and `dft`. They train a single linear layer over fixed features, which bears larger steps
than a network and needs them: a new row of `strict` starts as a copy of the background row. There,
tests/rcil/methods/test_strict_rate.py shows the difference: after 100 iterations the class has twice the IoU that it
has with 0.001."""
HIDDEN_SHARE = 0.5
"""With this share of hidden old classes or more, a step is careful."""
CAREFUL_LR, CAREFUL_BACKBONE_LR, CAREFUL_GAMMA = 0.3, 0.3, 10.0
"""Factors of the usual values in a careful step. With the usual ones, images of horses alone, added to cats, cows, dogs
and sheep, leave 13 of 70 points of the cats, and find fewer horses too: Adam changes all weights at the same pace, and
norms adapt to a site where the old classes do not occur."""
MIN_CROP, CROP_MULTIPLE = 32, 16
SCHEDULED = ("epochs", "epoch_images", "validate_images", "finishing_images")
"""Settings that `rcil.site.schedule` chooses, unless the number of epochs is given."""
PENDING = "chosen before the training"


class Choice(NamedTuple):
    """The value of a setting and where it comes from."""

    value: Any
    reason: str


@dataclass(frozen=True)
class Record:
    """The training that a checkpoint records."""

    training: TrainingSection
    reason: str
    scale: float = defaults.SCALE
    method: str = ""
    options: Mapping[str, Any] | None = None
    lr: float | None = None
    """Learning rate of later steps."""

    @property
    def warmup(self) -> float:
        """Share of a later step during which the learning rate rises."""
        return self.training.warmup / self.training.epochs[LATER]


def derive(metadata: Metadata, document: Mapping[str, Any]) -> dict[str, Choice]:
    """Settings by dotted key, for example `training.crop`, that `document` does not give.

    Args:
        metadata: The description of the checkpoint.
        document: Fields of a request: `scale`, and the sections `training` and `method` with the given keys only.
    """
    training, method = document.get("training"), document.get("method")
    if not isinstance(training, Mapping) or not isinstance(method, Mapping):
        return {}  # the validation of the request reports it
    name, given = str(method.get("name")), method.get("options", {})
    if not isinstance(given, Mapping) or not all(isinstance(key, str) for key in given):
        return {}
    weighs_classes = make_method(name, **given).weighs_classes
    record = recorded_training(metadata, name) or site_record(metadata)
    found = {key: Choice(getattr(record.training, key), record.reason) for key in INHERITED}
    wanted = training.get("optimiser")
    optimiser: Optimiser = wanted if wanted in ("sgd", "adamw") else record.training.optimiser
    found |= _optimisation(record, optimiser, training.get("epochs"), name)
    if not weighs_classes and found["class_weights"].value != "none":
        found["class_weights"] = Choice("none", f"{name} has one sigmoid per class")
    for key, most in (("crop", defaults.MAX_CROP), ("batch", defaults.MAX_BATCH)):
        found[key] = found[key]._replace(value=min(found[key].value, most))
    if record.training.augmentation == "random_resized_crop" and (training.get("focus") or "scale" in document):
        del found["augmentation"], found["scale"]  # random resized crops have neither focus nor another image size
    if "epochs" not in training:
        found |= {key: Choice(TrainingSection.model_fields[key].default, PENDING) for key in SCHEDULED}
        found["epochs"] = Choice(1, PENDING)
    chosen = {f"training.{key}": choice for key, choice in found.items() if key not in training}
    options = _options(record, name, optimiser, given)
    chosen |= {f"method.options.{key}": choice for key, choice in options.items()}
    return chosen if "scale" in document else {"scale": Choice(record.scale, record.reason), **chosen}


def _optimisation(record: Record, optimiser: Optimiser, epochs: Any, method: str) -> dict[str, Choice]:
    """Learning rates and warm-up: those of the record, or others if its optimiser is not the wanted one."""
    source = record
    if optimiser != record.training.optimiser:
        reason = f"recipe for {optimiser}, as the checkpoint was trained with {record.training.optimiser}"
        source = Record(_recipe(optimiser), reason)
    found = {key: Choice(getattr(source.training, key), source.reason) for key in OPTIMISATION}
    found["lr"] = Choice(source.lr or source.training.lr[LATER], source.reason)
    length = epochs[-1] if isinstance(epochs, list | tuple) and epochs else epochs
    found["warmup"] = Choice(source.warmup * (length if isinstance(length, int) else 1), source.reason)
    if METHODS[method].keeps_old:
        reason = f"{method} trains only new classifier rows"
        found |= {"lr": Choice(STRICT_LR[optimiser], reason), "classifier_lr": Choice(1.0, reason)}
    return found


def _options(record: Record, method: str, optimiser: Optimiser, given: Mapping[str, Any]) -> dict[str, Choice]:
    """Options of the method that are not given: recorded ones of the same method, then those of the optimiser.

    Recorded options that the method does not accept beside the given ones are left out as a whole.
    """
    possible = {f.name for f in fields(METHODS[method]) if f.init} - given.keys()
    suitable = {key: Choice(value, f"suits {optimiser}") for key, value in OPTIONS[optimiser].items()}
    suitable = {key: choice for key, choice in suitable.items() if key in possible}
    recorded = {key: value for key, value in (record.options or {}).items() if key in possible}
    if record.method != method or not recorded:
        return suitable
    try:
        make_method(method, **{**recorded, **given})
    except ConfigError:
        return suitable
    return {**suitable, **{key: Choice(value, record.reason) for key, value in recorded.items()}}


def recorded_training(metadata: Metadata, method: str) -> Record | None:
    """The last training that the checkpoint records; None if it was imported or its record cannot be used.

    Careful steps do not count: they changed the settings of the training before them.

    Args:
        metadata: The description of the checkpoint.
        method: Name of the method whose learning rate is asked for: a task may have one for every method.
    """
    for entry in reversed(metadata.lineage):
        if isinstance(entry.config.get("training"), Mapping) and not entry.config.get("careful"):
            return _as_record(entry, method)
    return None


def _as_record(entry: LineageEntry, method: str) -> Record | None:
    """What a lineage entry says about the training. It may come from another version, or from a damaged file."""
    config, known = entry.config, (*INHERITED, "epochs", "lr", "warmup")
    section, data = config.get("method"), config.get("data")
    try:
        training = TrainingSection.model_validate({k: v for k, v in config["training"].items() if k in known})
        section = section if isinstance(section, Mapping) else {}
        pair = (section.get("lr") or {}).get(method, training.lr)
        scale = data.get("scale", defaults.SCALE) if isinstance(data, Mapping) else config.get("scale", defaults.SCALE)
        options, lr = dict(section.get("options") or {}), float(pair[LATER])
        if not (0 < scale <= defaults.MAX_SCALE and 0 < lr <= defaults.MAX_LR):
            return None
        return Record(training, "from the checkpoint", float(scale), str(section.get("name")), options, lr)
    except (ValidationError, ValueError, TypeError, AttributeError, IndexError, KeyError):
        return None


def is_hidden(hidden: int, old: int) -> bool:
    """Whether the images show so few of the named old classes that a step must be careful."""
    return old > 0 and hidden >= HIDDEN_SHARE * old


def careful(
    derived: Mapping[str, str], values: Callable[[str], Any], method: str, hidden: int, old: int
) -> dict[str, Choice]:
    """Settings of a step whose images show few of the old classes, which nothing in the images then holds in place.

    Args:
        derived: Settings that the user did not give.
        values: Gives the value of a dotted key.
        method: Name of the method.
        hidden: Number of named old classes that few images show.
        old: Number of all named old classes.
    """
    if method != "rcil-plus" or not is_hidden(hidden, old) or values("training.optimiser") != "adamw":
        return {}
    reason = f"few images show {hidden} of the {old} old classes"
    choices = {
        "training.lr": Choice([rate * CAREFUL_LR for rate in values("training.lr")], reason),
        "training.backbone_lr": Choice(values("training.backbone_lr") * CAREFUL_BACKBONE_LR, reason),
    }
    if "method.options.gamma" in derived:
        choices["method.options.gamma"] = Choice(values("method.options.gamma") * CAREFUL_GAMMA, reason)
    found = {key: choice for key, choice in choices.items() if key in derived}
    if values("method.options.replay") is None:
        found["method.options.replay"] = Choice(True, reason)
    return {"careful": Choice(True, reason), **found}


def site_record(metadata: Metadata) -> Record:
    """The site recipe, for checkpoints without a recorded training."""
    training = _recipe("adamw").model_copy(update={"channels_last": metadata.architecture.lite})
    return Record(training, "site recipe, as the checkpoint records no training")


def _recipe(optimiser: Optimiser) -> TrainingSection:
    """The site recipe for AdamW, and the paper's settings for SGD."""
    return TrainingSection.model_validate(SITE_TRAINING if optimiser == "adamw" else {})


def fitting_crop(crop: int, shorter_sides: Sequence[float]) -> int:
    """`crop`, or the largest multiple of 16 that fits into half of the images.

    Args:
        crop: The largest allowed side.
        shorter_sides: The shorter side of every image as the network sees it. The median counts, so that a few small
            images do not determine the crops of all others.
    """
    side = median(shorter_sides)
    return crop if crop <= side else max(MIN_CROP, int(side) // CROP_MULTIPLE * CROP_MULTIPLE)
