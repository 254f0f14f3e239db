"""Several checkpoints evaluated side by side, as data; terminal, JSON and page are renderings of it."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rcil.checkpoint.file import load_for_inference
from rcil.checkpoint.header import read_header
from rcil.checkpoint.metadata import Metadata
from rcil.data.site import read_site
from rcil.devices import choose_device
from rcil.errors import ConfigError, did_you_mean
from rcil.evaluate import EvalReport, evaluate


@dataclass(frozen=True)
class Evaluated:
    """One checkpoint and how well it does."""

    path: Path
    metadata: Metadata
    report: EvalReport


@dataclass(frozen=True)
class ClassHistory:
    """One class over several models."""

    name: str
    step: int
    """The step that brought it."""
    iou: tuple[float, ...]
    """One a model; NaN where the model does not know it or it never occurs."""


def evaluate_models(
    paths: Sequence[Path],
    data: Path,
    split: str,
    *,
    scale: float = 1.0,
    device: str = "auto",
    progress: Callable[[int, int], None] = lambda done, total: None,
) -> list[Evaluated]:
    """Evaluate checkpoints on a split of a site; in the order of their steps, whatever order they are given in.

    Args:
        paths: The checkpoints; all headers are read before the first is evaluated.
        data: The site folder; nothing is written to it.
        split: One of its splits.
        scale: Size at which the networks see images, as a factor.
        device: Where the networks run: `auto`, `cpu`, `cuda` or `cuda:N`.
        progress: Told how many of how many images are done, over all models.
    """
    if not 0 < scale <= 4:
        raise ConfigError(f"a scale of {scale:g} is not possible", "Give a factor above 0, at most 4.")
    place = choose_device(device)
    ordered = sorted(paths, key=lambda path: read_header(path).metadata.step)
    site = read_site(data, record=False)
    if split not in site.splits:
        raise ConfigError(f"{data} has no split '{split}'", did_you_mean(split, site.splits))
    samples = site.splits[split]
    models = []
    for index, path in enumerate(ordered):
        network, metadata = load_for_inference(path)
        network = network.to(place)
        before, total = index * len(samples), len(ordered) * len(samples)

        def tell(done: int, _: int, before: int = before, total: int = total) -> None:
            progress(before + done, total)

        models.append(Evaluated(path, metadata, evaluate(network, metadata, site, samples, tell, scale=scale)))
    return models


def as_document(models: Sequence[Evaluated]) -> dict[str, Any]:
    """JSON-ready: the report of a single model as it is, several in a list with the path of each."""
    if len(models) == 1:
        return models[0].report.as_document()
    return {"models": [{"model": str(m.path), "step": m.metadata.step, **m.report.as_document()} for m in models]}


def labels(models: Sequence[Evaluated]) -> list[str]:
    """A short name for each: its step where that tells them apart, otherwise its file, if need be with a number."""
    steps = [str(m.metadata.step) for m in models]
    files = [m.path.stem for m in models]
    for names in (steps, files):
        if len(set(names)) == len(names):
            return names
    return [f"{number}: {name}" for number, name in enumerate(files, 1)]


def labelled_by_step(models: Sequence[Evaluated]) -> bool:
    """Whether `labels` are steps."""
    return len({m.metadata.step for m in models}) == len(models)


def headings(models: Sequence[Evaluated]) -> list[str]:
    """Heads of columns, one a model."""
    return [f"step {label}" if labelled_by_step(models) else label for label in labels(models)]


def histories(models: Sequence[Evaluated]) -> list[ClassHistory]:
    """Every class that any of the models knows, in the order in which they come."""
    iou: list[dict[str, float]] = [{c.name: c.iou for c in m.report.classes} for m in models]
    steps: dict[str, int] = {}
    for m in models:
        for c in m.report.classes:
            steps.setdefault(c.name, c.step)
    return [ClassHistory(name, step, tuple(known.get(name, math.nan) for known in iou)) for name, step in steps.items()]
