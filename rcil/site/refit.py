"""Refit the classifier of any checkpoint to images, without training: forward passes and a convex fit."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from rcil import __version__, defaults
from rcil.checkpoint.file import save
from rcil.core.errors import ConfigError
from rcil.core.files import check_other_file, check_writable, sha256_of
from rcil.core.log import Progress
from rcil.core.reading import DataError
from rcil.data.scan import data_digest, id_table, scan, with_void_background
from rcil.data.site import read_site
from rcil.data.types import IGNORE, Sample, SegmentationData
from rcil.evaluation.evaluate import read_pair
from rcil.hardware.devices import choose_device
from rcil.inference import Model, as_input, load
from rcil.methods.biases import balance_biases
from rcil.methods.pixels import sample_pixels
from rcil.methods.refit import refit_classifier
from rcil.methods.replay import measure_features
from rcil.model.metadata import LineageEntry
from rcil.site.run import label_table
from rcil.training.augment import resized
from rcil.training.loop import looked_at

NOT_JUDGED = "its classifier was refitted after it was judged; compare both with rcil eval"
"""The mark of a refitted model. One that was rejected stays rejected: nothing has judged it again."""


def refit(
    model: Path,
    data: Path,
    output: Path,
    *,
    previous: Path | None = None,
    split: str = defaults.TRAINING_SPLIT,
    images: int = defaults.REFIT_IMAGES,
    void_background: bool = False,
    scale: float | None = None,
    device: str = "auto",
    progress: Progress = lambda done, total: None,
) -> dict[str, Any]:
    """Fit all classifier rows to the features of the network, as `rcil-plus` does after a step; returns a summary.

    Labels come from the masks. With `previous`, its predictions replace background, so that masks which name only the
    new classes are enough; without it, the masks must name every class of the model.

    Args:
        model: The checkpoint, of any form and method; RCIL, PLOP and MiB checkpoints that were imported too.
        data: The site folder; classes are matched by name.
        output: The checkpoint to write.
        previous: The checkpoint that the last step of `model` started from.
        split: Name of the split.
        images: Approximate number of whole images to look at.
        void_background: Ignore background in the masks, where it means "unlabelled".
        scale: The network sees images at this multiple of their size, by default as in its training.
        device: `auto`, `cpu`, `cuda` or `cuda:N`.
        progress: Called with the number of processed images and their total.
    """
    check_writable(output)
    for source in (model, *([] if previous is None else [previous])):
        check_other_file(output, source, "the checkpoint")
    chosen = choose_device(device)
    loaded = load(model).to(chosen)
    teacher = None if previous is None else load(previous).folded.to(chosen)
    known = _known(loaded, teacher)
    site = read_site(data, record=False)
    if void_background:
        site = with_void_background(site)
    samples = _samples(site, data, split, images)
    _check_labels(loaded, known, site, data, split, samples)
    scale = loaded.metadata.training_scale if scale is None else scale
    whole = _whole(loaded, site, samples, scale, progress)
    network = loaded.network
    pixels = sample_pixels(network, None if teacher is None else teacher.network, whole)
    refit_classifier(network, pixels)
    balance_biases(network, pixels, range(known, len(loaded.classes)))
    config = {"split": split, "images": len(samples), "void_background": void_background, "scale": scale}
    config["previous"] = None if previous is None else previous.name
    entry = LineageEntry(
        step=loaded.metadata.step,
        source="rcil refit",
        parent_sha256=sha256_of(model),
        data_sha256=data_digest(samples),
        config=config,
        versions={"rcil": __version__, "torch": torch.__version__},
    )
    changes: dict[str, Any] = {"lineage": (*loaded.metadata.lineage, entry)}
    if teacher is None:
        changes["features"] = measure_features(pixels)
    if loaded.metadata.rejected is None:
        changes["uncertain"] = NOT_JUDGED
    save(output, network.cpu(), loaded.metadata.model_copy(update=changes))
    return {"model": str(output), "classes": [c.name for c in loaded.classes], "pixels": len(pixels.features), **config}


def _known(model: Model, teacher: Model | None) -> int:
    """Number of the first rows that the teacher knows: 0 without one."""
    if teacher is None:
        return 0
    names, old = ([c.name for c in each.classes] for each in (model, teacher))
    if names[: len(old)] != old:
        raise ConfigError(
            f"the previous model knows {', '.join(old)}, which are not the first classes of the model",
            "Give the checkpoint that the last step of the model started from.",
        )
    return len(old)


def _samples(site: SegmentationData, data: Path, split: str, images: int) -> tuple[Sample, ...]:
    """About `images` samples of the split, evenly spread."""
    if not site.splits.get(split):
        raise DataError(f"{data} has no split '{split}'", f"Choose one of: {', '.join(sorted(site.splits))}.")
    found = site.splits[split]
    return tuple(found[index] for index in looked_at(len(found), images))


def _check_labels(
    model: Model, known: int, site: SegmentationData, data: Path, split: str, samples: tuple[Sample, ...]
) -> None:
    """Raise if a class that no teacher predicts has no labels: its row would be fitted to nothing."""
    ids = {class_id for content in scan(site, samples) for class_id in content.present} - {IGNORE}
    present = {site.names[class_id] for class_id in ids}
    missing = [c.name for c in model.classes[max(1, known) :] if c.name not in present]
    if missing:
        raise DataError(
            f"no mask of {data} that was looked at (split {split}, {len(samples)} images) names {', '.join(missing)}",
            "Label it, look at more images with --count, "
            "or let the model before the last step predict old classes with --previous.",
        )


def _whole(
    model: Model, site: SegmentationData, samples: tuple[Sample, ...], scale: float, progress: Progress
) -> Iterator[tuple[Tensor, Tensor]]:
    """Whole images [1, 3, H, W] with their labels [1, H, W]."""
    table = label_table(site, model.metadata)[id_table(site)]
    for done, sample in enumerate(samples, 1):
        image, mask = resized(*read_pair(sample, table), scale)
        yield as_input(model.metadata, image)[None], torch.from_numpy(mask).long()[None]
        progress(done, len(samples))
