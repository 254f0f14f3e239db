"""What the methods of a table see: images in rows, methods in columns."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from rcil.checkpoint.file import load
from rcil.data.site import read_site
from rcil.demo.picture import draw_grid, pick
from rcil.images import write_image
from tools.results.cells import Cell, Table
from tools.results.runner import result_of

IMAGES = 3


def draw_pictures(table: Table, cells: Sequence[Cell], runs: Path, folder: Path) -> bool:
    """Write NAME-images.jpg with the first replica's models; False while one of them is missing."""
    first = next(iter(table.replicas))
    wanted = {row: cell for row in table.pictures for cell in cells if (cell.row, cell.replica) == (row, first)}
    if any(result_of(cell, runs) is None for cell in wanted.values()):
        return False
    models = {row: load(last_model(runs / cell.id)) for row, cell in wanted.items()}
    data = read_site(next(iter(wanted.values())).task.data.root)
    names = next(reversed(models.values()))[0].names[1:]
    samples = pick(data, "val", _common(names, models), IMAGES)
    write_image(folder / f"{table.name}-images.jpg", draw_grid(samples, data, models))
    return True


def last_model(run: Path) -> Path:
    """The checkpoint of the last step."""
    return max(run.glob("step*.safetensors"), key=lambda path: int(path.stem.removeprefix("step")))


def _common(names: Sequence[str], models: Mapping[str, object]) -> list[str]:
    """Classes large enough to be seen in a small picture."""
    del models
    return [name for name in names if name not in {"pole", "sign", "pedestrian", "bicyclist", "fence"}]
