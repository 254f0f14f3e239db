"""Choose the frames of a video or of a folder of images that are worth labelling next."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, get_args

import cv2
import numpy as np
import torch
from numpy.typing import NDArray

from rcil import defaults
from rcil.core.documents import write_json
from rcil.core.drawing import drawable, fitted, grid
from rcil.core.errors import ConfigError, RunError, did_you_mean
from rcil.core.files import check_writable, copy_file
from rcil.core.images import Image, scaled, write_image
from rcil.core.log import DryRun, Progress
from rcil.core.reading import DataError, creating, require_free
from rcil.hardware.devices import choose_device
from rcil.inference import Model, load
from rcil.labelling.frames import Folder, Frame, Video, open_source
from rcil.labelling.selection import Choice, Floats, Rule, choose, descriptor, percentile_ranks
from rcil.model.class_match import match_classes

SHEET = "contact_sheet.jpg"
CELL = (180, 240)
"""Height and width of a picture in the contact sheet."""
COLUMNS = 5
MAX_CELLS = 100
"""The contact sheet shows the first frames up to this number."""


@dataclass(frozen=True)
class _Scores:
    """What the first pass keeps of every frame."""

    numbers: NDArray[np.int64]
    """Positions in the source."""
    uncertainty: Floats
    """Mean entropy of the class probabilities of a pixel, from 0 (sure) to 1 (all classes are equally likely)."""
    confidence: Floats
    """Mean probability of the predicted classes."""
    disagreement: Floats
    """Share of the pixels where the two models give different classes that both know; 0 with one model."""
    descriptors: NDArray[np.float16]


def pick(
    source: Path,
    model: Path,
    output: Path,
    *,
    count: int = defaults.PICKED,
    by: Rule = "mixed",
    against: Path | None = None,
    every: int | None = None,
    scale: float | None = None,
    device: str = "auto",
    progress: Progress = lambda done, total: None,
) -> dict[str, Any]:
    """Write the frames that are worth labelling next to a new folder; returns the content of `pick.json`.

    Args:
        source: A video file, a folder of images or a site folder.
        model: A checkpoint of any form.
        output: The new folder, which is created atomically: `images/`, `pick.json` and a contact sheet.
        count: Maximum number of frames.
        by: `uncertain`: high entropy. `diverse`: different from each other. `disagree`: the models differ. `mixed`:
            uncertain (and, with `against`, disputed) and different from those picked before.
        against: A second checkpoint, to compare with; classes are matched by name.
        every: Look at every Nth frame; None looks at all images of a folder, and chooses for a video.
        scale: Factor by which images are resized for the network; by default that of its training.
        device: Device of the network: `auto`, `cpu`, `cuda` or `cuda:N`.
        progress: Called with the number of frames seen and their total.
    """
    chosen_device = choose_device(device)
    opened, every = _checked(source, output, count, by, against, every)
    models = [load(path).folded.to(chosen_device) for path in (model, against) if path is not None]
    scale = models[0].metadata.training_scale if scale is None else scale
    scores = _score(opened, every, models, scale, progress)
    values = _values(scores, by, len(models))
    choices, duplicates = choose(scores.descriptors, values, count, spread=by in ("mixed", "diverse"))
    document = {
        "source": str(source),
        "model": str(model),
        "against": str(against) if against else None,
        "by": by,
        "every": every,
        "frames": len(scores.numbers),
        "near_duplicates": duplicates,
        "picked": _entries(scores, choices, by, len(models)),
    }
    with creating(output) as folder:
        _write(folder, opened, document)
    return document


def dry_run(
    source: Path, model: Path, output: Path, *, count: int, by: Rule, against: Path | None, every: int | None
) -> DryRun:
    """Report what `pick` would do."""
    opened, every = _checked(source, output, count, by, against, every)
    check_writable(output)
    total = -(-opened.count // every)
    reads = {str(source): f"{total or 'all'} frames to look at" + (f", 1 in {every}" if every > 1 else "")}
    for path in (model, against):
        if path is not None:
            metadata = load(path).metadata
            reads[str(path)] = f"step {metadata.step}, {len(metadata.classes)} classes"
    return DryRun(reads, {str(output): f"up to {min(count, total or count)} images, pick.json, {SHEET}"})


def _checked(
    source: Path, output: Path, count: int, by: Rule, against: Path | None, every: int | None
) -> tuple[Folder | Video, int]:
    """The opened source and the interval of its frames; raises before a model is loaded."""
    if by not in get_args(Rule):
        raise ConfigError(f"unknown rule '{by}'", did_you_mean(by, get_args(Rule)))
    if by == "disagree" and against is None:
        raise ConfigError("--by disagree compares two models", "Name the other one with --against.")
    require_free(output)
    opened = open_source(source)
    if every is not None:
        return opened, every
    if opened.fps is None:
        return opened, 1
    return opened, max(1, min(round(opened.fps / 2), opened.count // (10 * count)))


def _score(source: Folder | Video, every: int, models: list[Model], scale: float, progress: Progress) -> _Scores:
    """The first pass: look at all frames and keep a few numbers of each."""
    total = -(-source.count // every)
    rows: list[tuple[int, float, float, float]] = []
    descriptors: list[NDArray[np.float16]] = []
    for done, frame in enumerate(source.frames(every), 1):
        small = scaled(frame.image, scale)
        uncertainty, confidence, classes = _look(models[0], small)
        disagreement = _disagreement(models, classes, small) if len(models) == 2 else 0.0
        shares = np.bincount(classes.ravel(), minlength=len(models[0].classes)) / classes.size
        rows.append((frame.number, uncertainty, confidence, disagreement))
        descriptors.append(descriptor(frame.image, shares.astype(np.float32)))
        progress(done, max(done, total))
    if not rows:
        raise DataError(f"{source.path} holds no frames that can be decoded", "Check the file with another player.")
    table = np.array(rows, np.float64)
    if not np.isfinite(table).all():
        raise RunError("the model computes numbers that are not finite", "Check it with `rcil eval`.")
    uncertain, confident, disputed = table[:, 1:].T.astype(np.float32)
    return _Scores(table[:, 0].astype(np.int64), uncertain, confident, disputed, np.stack(descriptors))


@torch.no_grad()
def _look(model: Model, image: Image) -> tuple[float, float, NDArray[np.uint8]]:
    """Mean entropy relative to its maximum, mean confidence, and class rows [H, W]."""
    logs = model.logits([image], scale=1.0)[0].float().log_softmax(0)
    entropy = -(logs.exp() * logs).sum(0).mean() / np.log(max(2, len(logs)))
    best, rows = logs.max(0)
    return float(entropy), float(best.exp().mean()), rows.to(torch.uint8).cpu().numpy()


def _disagreement(models: list[Model], rows: NDArray[np.uint8], image: Image) -> float:
    """Share of the pixels where the models give different classes and both models know both classes.

    A class that one of the models lacks is no disagreement: the other one cannot predict it.
    """
    first, second = models
    match = match_classes(first.classes, second.classes)
    unknown = len(match.names)
    common = [np.full(len(model.classes), unknown) for model in models]
    common[0][match.old_rows] = common[1][match.new_rows] = np.arange(unknown)
    mine, other = common[0][rows], common[1][second.segment(image, scale=1.0)]
    return float(((mine != other) & (mine < unknown) & (other < unknown)).mean())


def _values(scores: _Scores, by: Rule, models: int) -> Floats:
    """The value of every frame by itself, [N]; positive unless frames are sorted by it."""
    if by == "uncertain":
        return scores.uncertainty
    if by == "disagree":
        return scores.disagreement
    if by == "diverse":
        return np.ones_like(scores.uncertainty)
    ranks = percentile_ranks(scores.uncertainty)
    return ranks if models == 1 else np.mean([ranks, percentile_ranks(scores.disagreement)], axis=0, dtype=np.float32)


def _entries(scores: _Scores, choices: list[Choice], by: Rule, models: int) -> list[dict[str, Any]]:
    """The chosen frames as JSON, most valuable first; `image`, `file` and `seconds` are added when they are written."""
    entries = []
    for one in choices:
        i, gap = one.index, one.distance
        reasons = {
            "uncertain": f"uncertainty {scores.uncertainty[i]:.2f}, confidence {scores.confidence[i]:.0%}",
            "disagree": f"the models differ in {scores.disagreement[i]:.1%} of the pixels",
            "diverse": "farthest from the mean" if gap is None else f"distance {gap:.2f} to the frames before",
        }
        mixed = ["uncertain", *(["disagree"] if models == 2 else []), *(["diverse"] if gap is not None else [])]
        entry = {
            "frame": int(scores.numbers[i]),
            "uncertainty": float(scores.uncertainty[i]),
            "confidence": float(scores.confidence[i]),
            "disagreement": float(scores.disagreement[i]) if models == 2 else None,
            "distance": gap,
            "reason": "; ".join(reasons[rule] for rule in (mixed if by == "mixed" else [by])),
        }
        entries.append(entry)
    return entries


def _write(folder: Path, source: Folder | Video, document: dict[str, Any]) -> None:
    """The second pass: write the chosen frames, `pick.json` and the contact sheet."""
    ranks = {entry["frame"]: rank for rank, entry in enumerate(document["picked"])}
    cells: dict[int, Image] = {}
    for frame in source.frames(only=set(ranks)):
        rank = ranks[frame.number]
        entry = document["picked"][rank]
        file = _write_frame(folder / "images", frame)
        origin = {"file": str(frame.path)} if frame.path else {"seconds": frame.seconds}
        document["picked"][rank] = {"image": file.relative_to(folder).as_posix(), **origin, **entry}
        if rank < MAX_CELLS:
            cells[rank] = _cell(frame.image, f"{rank + 1}: {frame.name}")
    write_json(folder / "pick.json", document)
    pictures = [cells[rank] for rank in sorted(cells)]
    write_image(folder / SHEET, grid([pictures[at : at + COLUMNS] for at in range(0, len(pictures), COLUMNS)]))


def _write_frame(images: Path, frame: Frame) -> Path:
    """Copy an image file, or write the frame of a video as JPEG; returns its path."""
    if frame.path is None:
        write_image(images / f"{frame.name}.jpg", frame.image)
        return images / f"{frame.name}.jpg"
    target = images / f"{frame.name}{frame.path.suffix.lower()}"
    copy_file(frame.path, target)
    return target


def _cell(image: Image, title: str) -> Image:
    """A picture of the contact sheet [*CELL, 3]: the image in proportion, with its title on a bar."""
    cell = fitted(image, CELL, 225)
    cell[-20:] = 32
    place = (6, CELL[0] - 6)
    cv2.putText(cell, drawable(title), place, cv2.FONT_HERSHEY_SIMPLEX, 0.42, (255, 255, 255), 1, cv2.LINE_AA)
    return cell
