"""Evaluate several checkpoints on the same data. Torch is imported only when they are evaluated."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from rcil import defaults
from rcil.core.errors import ConfigError, did_you_mean
from rcil.core.images import encoded
from rcil.core.log import Progress
from rcil.data.protocol import BACKGROUND
from rcil.data.scan import with_void_background
from rcil.data.site import read_site
from rcil.data.types import Sample, SegmentationData
from rcil.evaluation.bootstrap import iou_of
from rcil.evaluation.diverse import by_class_score, choose
from rcil.hardware.devices import choose_device
from rcil.model.header import read_header
from rcil.model.metadata import Metadata
from rcil.report.pictures import draw_evaluation

if TYPE_CHECKING:
    from rcil.evaluation.evaluate import EvalReport
    from rcil.inference import Model

MIN_TEST_CROP = 32
MIN_PIXELS = 100
"""Pixels of a class, true or predicted, from which on it counts for the choice of pictures."""
MAX_NAMES = 3
"""Maximum number of classes that a caption names."""


@dataclass(frozen=True)
class Evaluated:
    """One checkpoint and its evaluation."""

    path: Path
    metadata: Metadata
    report: EvalReport
    scale: float = 1.0
    """Factor by which images were resized for the network."""
    pictures: tuple[Picture, ...] = ()
    """Some images with ground truth, prediction and errors."""


@dataclass(frozen=True)
class Picture:
    """A drawn image of an evaluation."""

    sample: str
    caption: str
    """Why it is shown."""
    jpeg: bytes


@dataclass(frozen=True)
class ClassHistory:
    """The IoU of one class in several models."""

    name: str
    step: int
    """The step that added the class."""
    iou: tuple[float, ...]
    """IoU per model; NaN if the model does not know the class or it never occurs."""


def evaluate_models(
    paths: Sequence[Path],
    data: Path,
    split: str,
    *,
    scale: float | None = None,
    test_crop: int | None = None,
    void_background: bool = False,
    device: str = "auto",
    draw: bool = False,
    progress: Progress = lambda done, total: None,
) -> list[Evaluated]:
    """Evaluate checkpoints on a split of a site; the results are ordered by step.

    Args:
        paths: The checkpoints; all headers are read before the first is evaluated.
        data: The site folder; nothing is written to it.
        split: The split to evaluate.
        scale: Factor by which images are resized for the networks; by default that of each network's training.
        test_crop: Side of the centre crop that is evaluated; None evaluates whole images.
        void_background: Ignore background in the masks, where it means "unlabelled".
        device: Device of the networks: `auto`, `cpu`, `cuda` or `cuda:N`.
        draw: Also draw some images with ground truth, prediction and errors of the last model.
        progress: Called with the number of finished images and their total, over all models.
    """
    from rcil.evaluation.evaluate import evaluate
    from rcil.inference import load

    if scale is not None and not 0 < scale <= defaults.MAX_SCALE:
        raise ConfigError(f"scale {scale:g} is out of range", f"Give a factor above 0, at most {defaults.MAX_SCALE:g}.")
    if test_crop is not None and test_crop < MIN_TEST_CROP:
        raise ConfigError(f"a centre crop of {test_crop} pixels is too small", f"Give at least {MIN_TEST_CROP}.")
    chosen = choose_device(device)
    ordered = sorted(paths, key=lambda path: read_header(path).metadata.step)
    site = read_site(data, record=False)
    if void_background:
        site = with_void_background(site)
    if split not in site.splits:
        raise ConfigError(f"{data} has no split '{split}'", did_you_mean(split, site.splits))
    samples = site.splits[split]
    models = []
    for index, path in enumerate(ordered):
        model = load(path).to(chosen)
        before, total = index * len(samples), len(ordered) * len(samples)

        def tell(done: int, _: int, before: int = before, total: int = total) -> None:
            progress(before + done, total)

        factor = model.metadata.training_scale if scale is None else scale
        report = evaluate(model, site, samples, tell, scale=factor, test_crop=test_crop)
        is_last = index == len(ordered) - 1
        drawn = _drawn(model, site, samples, report, scale=factor, test_crop=test_crop) if draw and is_last else ()
        models.append(Evaluated(path, model.metadata, report, factor, drawn))
    return models


def _drawn(
    model: Model,
    site: SegmentationData,
    samples: Sequence[Sample],
    report: EvalReport,
    *,
    scale: float,
    test_crop: int | None,
) -> tuple[Picture, ...]:
    """Draw poor, good and typical images of different scenes, judged by the latest classes."""
    from rcil.evaluation.evaluate import read_pair, rows_by_value

    table = rows_by_value(site, [c.name for c in model.classes])
    pictures = []
    for index, caption in _choose(report):
        image, truth = read_pair(samples[index], table, test_crop)
        drawn = draw_evaluation(image, truth, model.folded.segment(image, scale=scale), model.classes)
        pictures.append(Picture(samples[index].name, caption, encoded(Path("picture.jpg"), drawn, quality=90)))
    return tuple(pictures)


def _choose(report: EvalReport) -> list[tuple[int, str]]:
    """The images to draw, with captions; classes with hardly any pixels in an image do not count."""
    assert report.per_image is not None
    latest = max(c.step for c in report.classes)
    rows = [row for row, c in enumerate(report.classes) if c.step == latest and row != BACKGROUND]
    counts = report.per_image.counts[:, :, rows]
    iou, sizes = iou_of(counts), counts[:, 1:].max(axis=1)
    seen = (sizes >= MIN_PIXELS) & ~np.isnan(iou)
    sums, classes = np.where(seen, iou, 0).sum(axis=1), seen.sum(axis=1)
    scores = np.divide(sums, classes, out=np.full(len(iou), np.nan), where=classes > 0)
    names = [report.classes[row].name for row in rows]
    name = " and ".join(names) if len(names) <= MAX_NAMES else f"the {len(names)} classes of step {latest}"
    wishes = by_class_score(scores, sizes.sum(axis=1), name, worst=4, typical=2, best=3)
    return choose(wishes, report.per_image.thumbnails)


def as_document(models: Sequence[Evaluated]) -> dict[str, Any]:
    """A JSON-ready document: the report of a single model, or a list of reports with paths."""
    documents = [{"scale": m.scale, **m.report.as_document()} for m in models]
    if len(models) == 1:
        return documents[0]
    named = zip(models, documents, strict=True)
    return {"models": [{"model": str(m.path), "step": m.metadata.step, **document} for m, document in named]}


def labels(models: Sequence[Evaluated]) -> list[str]:
    """Short names of the models: their steps if these are unique, otherwise file names, numbered if necessary."""
    if labelled_by_step(models):
        return [str(m.metadata.step) for m in models]
    files = [m.path.stem for m in models]
    unique = len(set(files)) == len(files)
    return files if unique else [f"{number}: {name}" for number, name in enumerate(files, 1)]


def labelled_by_step(models: Sequence[Evaluated]) -> bool:
    """Whether `labels` are steps."""
    return len({m.metadata.step for m in models}) == len(models)


def headings(models: Sequence[Evaluated]) -> list[str]:
    """Column headings, one per model."""
    return [f"step {label}" if labelled_by_step(models) else label for label in labels(models)]


def histories(models: Sequence[Evaluated]) -> list[ClassHistory]:
    """All classes that any model knows, in order of appearance."""
    iou: list[dict[str, float]] = [{c.name: c.iou for c in m.report.classes} for m in models]
    steps: dict[str, int] = {}
    for m in models:
        for c in m.report.classes:
            steps.setdefault(c.name, c.step)
    return [ClassHistory(name, step, tuple(known.get(name, math.nan) for known in iou)) for name, step in steps.items()]
