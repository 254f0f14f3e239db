"""Check the request, the model and the site folder before anything is written."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import torch

from rcil.checkpoint.file import load
from rcil.core.errors import ConfigError, did_you_mean
from rcil.core.log import Progress
from rcil.core.reading import DataError
from rcil.data.check import CheckReport, Problem, check_site
from rcil.data.protocol import BACKGROUND
from rcil.data.scan import MaskContent, scan
from rcil.data.site import read_site
from rcil.data.types import IGNORE, Sample, SegmentationData
from rcil.inference import Model
from rcil.methods import Method, make_method
from rcil.model.header import read_header
from rcil.model.metadata import ClassInfo, Metadata
from rcil.site.background import left_as_background
from rcil.site.recipe import fitting_crop
from rcil.site.request import Request
from rcil.site.rules import (
    amount_problems,
    background_problems,
    hidden_problems,
    model_problems,
    name_problems,
    new_classes,
    size_problems,
)
from rcil.tasks.compatibility import check_compatible
from rcil.tasks.held_out import choose_held_out, hold_out
from rcil.training.run import check_pieces, spread

PROBED = 20
"""Number of training images that the old model is run on."""
NORM_IMAGES = 64
"""Maximum number of training images that the norms of a folded model are fitted to."""
MIN_SHOWN = 0.25
"""An old class that fewer of the training images show is hidden."""
NOTEWORTHY = 0.001
"""Minimum share of background pixels at which an old class is reported."""


@dataclass(frozen=True)
class Ready:
    """The input of the training."""

    model: Model
    """The old model. It is folded once, and its folded form is used everywhere."""
    data: SegmentationData
    train: tuple[Sample, ...]
    held_out: tuple[Sample, ...]
    """Held-out training images, which choose the best epoch."""
    new: tuple[ClassInfo, ...]
    labelled: frozenset[str]
    """Old classes with pixels in the masks of the training images."""
    labelled_in_evaluation: frozenset[str]
    """Old classes with pixels in the masks on which forgetting is measured: often all, while the training masks name
    the new class only."""
    amounts: dict[str, tuple[int, int]]
    """Number of images and pixels of every new class in the training split."""
    in_background: dict[str, float]
    """Share of background pixels that the old model predicts as each old class."""
    shown: dict[str, float]
    """Share of the training images that show each old class, by the masks or by the old model."""
    crop: int
    """Side of the training crops: the requested one or, if it was not given, one that fits into the images."""
    share: float
    """Share of the pixels of its training images that the smallest new class covers."""
    norm_images: int = 0
    """Number of training images that the norms of a folded model are fitted to; 0 if it needs none."""

    @property
    def hidden(self) -> tuple[str, ...]:
        """Old classes that few training images show."""
        return hidden_classes(self.shown)

    @property
    def evaluation(self) -> tuple[str, tuple[Sample, ...]]:
        """The images on which forgetting is measured: the split `val`, or the held-out images if there is none."""
        val = self.data.splits.get("val", ())
        return ("val", val) if val else ("held-out images", self.held_out)

    def as_document(self) -> dict[str, Any]:
        """JSON-ready."""
        return {
            "train_images": len(self.train),
            "held_out_images": len(self.held_out),
            "norm_images": self.norm_images,
            "new_classes": [
                {"name": c.name, "id": c.id, "images": self.amounts[c.name][0], "pixels": self.amounts[c.name][1]}
                for c in self.new
            ],
            "old_classes_labelled": sorted(self.labelled),
            "old_classes_labelled_in_evaluation": sorted(self.labelled_in_evaluation),
            "old_classes_in_background": self.in_background,
            "old_classes_shown": self.shown,
        }


@dataclass(frozen=True)
class Preflight:
    """The result of the check."""

    problems: tuple[Problem, ...]
    ready: Ready | None = None
    """None if there are errors."""

    @property
    def errors(self) -> tuple[Problem, ...]:
        """Problems that prevent the training."""
        return tuple(p for p in self.problems if p.severity == "error")

    @property
    def warnings(self) -> tuple[Problem, ...]:
        """Problems that do not prevent the training."""
        return tuple(p for p in self.problems if p.severity == "warning")

    def require(self) -> Ready:
        """Return the input of the training, or raise all errors at once."""
        if self.ready is None:
            listed = "\n".join(f"  {p.place}: {p.message}" for p in self.errors)
            many = "1 error" if len(self.errors) == 1 else f"{len(self.errors)} errors"
            raise DataError(f"{many} before training; nothing was written\n{listed}", "Fix the errors and start again.")
        return self.ready

    def as_document(self) -> dict[str, Any]:
        """JSON-ready."""
        ready = {} if self.ready is None else self.ready.as_document()
        return {"ok": self.ready is not None, "problems": [asdict(p) for p in self.problems], **ready}


def preflight(
    request: Request,
    progress: Progress = lambda done, total: None,
    *,
    device: torch.device | None = None,
    processes: int = 1,
) -> Preflight:
    """Check model, site folder and class names. Problems are collected, not raised.

    Raises only for a file that is not a checkpoint, a folder that is not a site folder, an unknown method or an
    impossible batch size.

    Args:
        request: The request.
        progress: Called with the number of checked images and their total.
        device: The training device, on which the old model is run on some images; the CPU by default.
        processes: Number of processes that share every batch.
    """
    method = make_method(request.method.name, **request.method.options)
    if method.sees_all_data:
        raise ConfigError(
            f"method '{request.method.name}' trains all classes at once", "Choose a continual learning method."
        )
    device = device or torch.device("cpu")
    check_pieces(request.training.batch, request.training.accumulate, processes)
    metadata = read_header(request.model).metadata
    check_compatible(metadata.architecture.norm, request.training.precision, device)
    report = check_site(request.data, progress)
    problems = model_problems(request.model, metadata)
    if method.carries_over:
        text = (
            "checkpoints do not contain the state that this method keeps of earlier steps: it starts without, and "
            "learns the old classes from the old model's predictions on these images; `rcil train` keeps the state"
        )
        problems.append(Problem("warning", f"method {request.method.name}", text))
    problems += [p for p in report.problems if p.severity == "error" or not p.place.startswith("class ")]
    if metadata.classes:
        problems += name_problems(request.classes, [c.name for c in report.classes], [c.name for c in metadata.classes])
    if not _allowed(problems):
        return Preflight(tuple(problems))
    return _with_images(request, method, metadata, report, problems, device)


def _with_images(
    request: Request,
    method: Method,
    metadata: Metadata,
    report: CheckReport,
    problems: list[Problem],
    device: torch.device,
) -> Preflight:
    """Check what depends on the content of the images and on the predictions of the old model."""
    data = read_site(request.data, seed=request.seed, record=False)
    new, colours = new_classes(request.classes, data.classes, metadata)
    problems = [*problems, *colours]
    if "train" not in data.splits:
        missing = Problem("error", str(data.root), f"no split 'train'. {did_you_mean('train', data.splits)}")
        return Preflight((*problems, missing))
    ids = {c.name: data.names.index(c.name) for c in new}
    everything = list(scan(data, data.splits["train"]))
    contents = [c for c in everything if c.present & set(ids.values())]
    amounts = {name: _amount(contents, class_id) for name, class_id in ids.items()}
    problems += amount_problems(amounts)
    sizes = [c.size for c in contents]
    crop = request.training.crop
    if "training.crop" in request.derived and sizes:
        crop = fitting_crop(crop, [min(size) * request.scale for size in sizes])
    problems += size_problems(sizes, crop, request.scale)
    if not _allowed(problems):
        return Preflight(tuple(problems))
    model = Model(*load(request.model), request.model)
    probed = [content.sample for content in spread(contents, PROBED)]
    model.folded.to(device)
    predicted = left_as_background(model, data, probed, scale=request.scale)
    shares = {name: share for name, (share, _) in predicted.items() if share >= NOTEWORTHY}
    problems += background_problems(shares, request.method.name)
    known = {c.name for c in metadata.classes[1:]}
    known_ids = {class_id: name for class_id, name in enumerate(data.names) if name in known}
    labelled = _labelled(contents, known_ids)
    shown = {name: images for name, (_, images) in predicted.items()}
    for class_id, name in known_ids.items():
        shown[name] = max(shown.get(name, 0.0), sum(class_id in c.present for c in contents) / len(contents))
    evaluated = _labelled(scan(data, data.splits["val"]), known_ids) if data.splits.get("val") else labelled
    hidden = hidden_classes(shown)
    problems += hidden_problems(hidden, len(shown), metadata, request.method.name)
    held = _held_out(everything, contents, request)
    train, held_out = hold_out([c.sample for c in contents], held)
    norm_images = min(NORM_IMAGES, len(train)) if metadata.architecture.folded and method.needs_norms else 0
    share = min(_share(contents, class_id) for class_id in ids.values())
    ready = Ready(
        model, data, train, held_out, new, labelled, evaluated, amounts, shares, shown, crop, share, norm_images
    )
    return Preflight(tuple(problems), ready)


def hidden_classes(shown: Mapping[str, float]) -> tuple[str, ...]:
    """The classes that few images show."""
    return tuple(name for name, images in shown.items() if images < MIN_SHOWN)


def _held_out(everything: Sequence[MaskContent], contents: Sequence[MaskContent], request: Request) -> frozenset[str]:
    """Names of the held-out images: the same share of the images of every class of the site.

    They do not depend on the classes of this request, so that a later request does not train on them. Where this would
    leave no image of the request on one side, its own images are divided.
    """
    images: dict[int, list[str]] = {}
    for content in everything:
        for class_id in content.present - {BACKGROUND, IGNORE}:
            images.setdefault(class_id, []).append(content.sample.name)
    steps = [images[class_id] for class_id in sorted(images)]
    held = choose_held_out(steps, request.seed, request.training.held_out)
    names = [c.sample.name for c in contents]
    if 0 < len(held.intersection(names)) < len(names):
        return held
    return choose_held_out([names], request.seed, request.training.held_out)


def _labelled(contents: Iterable[MaskContent], names: Mapping[int, str]) -> frozenset[str]:
    """Those of the classes, by id, that some mask contains."""
    return frozenset(names[class_id] for content in contents for class_id in content.present & names.keys())


def _amount(contents: Sequence[MaskContent], class_id: int) -> tuple[int, int]:
    """Number of images and pixels of a class."""
    return sum(class_id in c.present for c in contents), sum(int(c.pixels[class_id]) for c in contents)


def _share(contents: Sequence[MaskContent], class_id: int) -> float:
    """Share of the pixels of its images that a class covers."""
    mine = [c for c in contents if class_id in c.present]
    return sum(int(c.pixels[class_id]) for c in mine) / max(1, sum(c.size[0] * c.size[1] for c in mine))


def _allowed(problems: Sequence[Problem]) -> bool:
    return not any(p.severity == "error" for p in problems)
