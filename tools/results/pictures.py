"""Masks of a table's methods: images in rows, methods in columns."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from rcil.core.images import write_image
from rcil.data.scan import scan
from rcil.data.site import read_site
from rcil.data.types import SegmentationData
from rcil.demo.picture import draw_grid, pick
from rcil.inference import load
from tools.results.cells import Cell, Table
from tools.results.runner import result_of

IMAGES = 3
LARGE = 0.01
"""Minimum share of all pixels for a class to be considered when images are chosen."""


def draw_pictures(table: Table, cells: Sequence[Cell], runs: Path, folder: Path) -> None:
    """Write NAME-images.jpg with the models of the first replica, if it is requested and all exist."""
    first = next(iter(table.replicas))
    wanted = {row: cell for row in table.pictures for cell in cells if (cell.row, cell.replica) == (row, first)}
    if not wanted or any(result_of(cell, runs) is None for cell in wanted.values()):
        return
    models = {row: load(last_model(runs / cell.id)) for row, cell in wanted.items()}
    data = read_site(next(iter(wanted.values())).task.data.root)
    samples = pick(data, "val", large_classes(data), IMAGES)
    write_image(folder / f"{table.name}-images.jpg", draw_grid(samples, data, models))


def last_model(run: Path) -> Path:
    """The checkpoint of the last step."""
    return max(run.glob("step*.safetensors"), key=lambda path: int(path.stem.removeprefix("step")))


def large_classes(data: SegmentationData) -> list[str]:
    """Classes, without the background, that are large enough to be visible in the test images."""
    pixels = np.sum([content.pixels for content in scan(data, data.splits["val"])], axis=0)
    return [name for name, share in zip(data.names[1:], pixels[1:] / pixels.sum(), strict=False) if share >= LARGE]
