"""Segments images one by one, each at its own size."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from rcil.core.documents import write_json
from rcil.core.images import write_image
from rcil.core.reading import DataError
from rcil_serve.runtime.backends import Backend
from rcil_serve.runtime.painter import Painter, shares
from rcil_serve.runtime.predictor import Predictor
from rcil_serve.stream.outputs.masks import IdTable, write_mask
from rcil_serve.stream.outputs.receipt import describe_model
from rcil_serve.stream.sources.image_process import ImageProcess


@dataclass
class ImagesResult:
    """The results of a set of images."""

    images: list[dict[str, Any]] = field(default_factory=list)
    """For each image: name, size, share of every class that occurs, confidence and milliseconds."""
    problems: list[str] = field(default_factory=list)
    """Errors of images that could not be read."""


def segment_images(
    paths: Sequence[Path],
    backend: Backend,
    predictor: Predictor,
    painter: Painter,
    out: Path,
    progress: Callable[[int, int], None] = lambda done, total: None,
) -> ImagesResult:
    """Write `overlays/NAME.jpg`, `masks/NAME.png` (class ids) and `images.json` into `out`.

    Args:
        paths: The images. If two have the same name, the folder name is prepended.
        backend: The model.
        predictor: Predictor of this model.
        painter: Draws the overlays.
        out: The output folder.
        progress: Called with the number of finished images and of all images.
    """
    result, ids = ImagesResult(), IdTable(predictor.classes)
    names = [c.name for c in predictor.classes]
    with closing(ImageProcess()) as images:
        for done, (path, stem) in enumerate(zip(paths, _stems(paths), strict=True), 1):
            try:
                pixels = images.read(path)
            except DataError as error:
                result.problems.append(error.message)
                continue
            start = time.perf_counter()
            found = predictor.segment(pixels)
            seconds = time.perf_counter() - start
            write_image(out / "overlays" / f"{stem}.jpg", painter.paint(pixels, found.mask, found.grid_size))
            write_mask(out / "masks" / f"{stem}.png", ids.of(found.mask), ids.chunk)
            covered = zip(names, shares(found.mask, len(names)), strict=True)
            result.images.append(
                {
                    "image": str(path),
                    "size": list(pixels.shape[:2]),
                    "shares": {name: round(float(part), 6) for name, part in covered if part > 0},
                    "confidence": None if found.confidence is None else round(found.confidence, 4),
                    "infer_ms": round(1000 * seconds, 3),
                }
            )
            progress(done, len(paths))
    write_json(
        out / "images.json", {"model": describe_model(backend), "images": result.images, "problems": result.problems}
    )
    return result


def _stems(paths: Sequence[Path]) -> list[str]:
    """A unique name for the outputs of each image."""
    stems = [path.stem for path in paths]
    found, counts = np.unique(stems, return_counts=True)
    twice = set(found[counts > 1])
    named = [f"{path.parent.name}_{path.stem}" if path.stem in twice else path.stem for path in paths]
    if len(set(named)) == len(named):
        return named
    return [f"{index:06}_{stem}" for index, stem in enumerate(stems)]
