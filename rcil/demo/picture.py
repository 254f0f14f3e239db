"""The picture of the demo: scenes in rows; the image, what each model sees, and the ground truth in columns."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import cv2
import numpy as np
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from rcil.core.drawing import Image, lut_of
from rcil.core.images import read_rgb
from rcil.core.masks import read_mask
from rcil.data.scan import MaskContent, scan
from rcil.data.types import IGNORE, Sample, SegmentationData
from rcil.evaluation.evaluate import rows_by_value
from rcil.inference import Model
from rcil.model.metadata import ClassInfo, Metadata

SCALE = 2
"""Factor by which images are enlarged."""
FINE = 2
"""Masks are painted at this multiple of the enlarged size and then reduced, which smooths their edges."""
FILL, LINE = 0.5, 0.95
"""Opacity of the inside and of the outline of a region."""
VISIBLE = 0.003
"""Minimum share of the pixels at which a class counts as visible."""
CLEAR = 0.05
"""Share of the pixels above which the new class is large enough, and other classes decide."""
INK = "#1B1F24"


def pick(data: SegmentationData, split: str, names: Sequence[str], count: int) -> list[Sample]:
    """The samples that show most of all `names`, ranked by the smallest pixel count among these classes."""
    ids = [data.names.index(name) for name in names]
    contents = scan(data, data.splits[split])
    ranked = sorted(contents, key=lambda c: (-int(c.pixels[ids].min()), -int(c.pixels[ids[-1]]), c.sample.name))
    return [content.sample for content in ranked[:count]]


def pick_scenes(data: SegmentationData, split: str, name: str, domains: Sequence[str]) -> list[Sample]:
    """One sample per domain: it shows the class `name` clearly, and as many other classes as possible.

    The choice depends on the masks only, not on what a model makes of the image.
    """
    wanted = data.names.index(name)

    def rank(content: MaskContent) -> tuple[float, int, str]:
        shares = content.pixels / content.pixels.sum()
        return -min(float(shares[wanted]), CLEAR), -int(np.count_nonzero(shares >= VISIBLE)), content.sample.name

    contents = sorted(scan(data, data.splits[split]), key=rank)
    found = {domain: [c.sample for c in contents if c.sample.domain == domain] for domain in domains}
    return [samples[0] for samples in found.values() if samples]


def draw_grid(samples: Sequence[Sample], data: SegmentationData, models: Mapping[str, Model]) -> Image:
    """Draw a titled grid with a legend below, RGB [H, W, 3].

    Args:
        samples: One sample per row, all of one size.
        data: The dataset of the samples.
        models: Title -> a model; the last one's classes are those of ground truth and legend. Rows may be
            in another order from model to model, so each has its own colours.
    """
    metadata = list(models.values())[-1].metadata
    table = rows_by_value(data, [c.name for c in metadata.classes])
    rows = []
    for sample in samples:
        image = read_rgb(sample.image)
        masks = [(m.segment(image), m.metadata) for m in models.values()]
        masks.append((table[read_mask(sample.mask)], metadata))
        rows.append([enlarged(image), *(paint(image, mask, _colours(shown)) for mask, shown in masks)])
    titles = ["image", *models, "ground truth"]
    return compose(rows, titles, [sample.domain for sample in samples], metadata.classes[1:])


def enlarged(image: Image, factor: int = SCALE) -> Image:
    """The image at a multiple of its size."""
    size = image.shape[1] * factor, image.shape[0] * factor
    return np.asarray(cv2.resize(image, size, interpolation=cv2.INTER_CUBIC), np.uint8)


def paint(image: Image, mask: Image, colours: Image) -> Image:
    """The enlarged image with smooth, outlined regions in class colours; background and ignored pixels stay.

    Args:
        image: RGB [H, W, 3].
        mask: Class rows [H, W].
        colours: From `lut_of`.
    """
    rows = _smooth(mask, SCALE * FINE)
    opacity = np.full(rows.shape, FILL, np.float32)
    opacity[_outline(rows, SCALE * FINE)] = LINE
    opacity[(rows == 0) | (rows == IGNORE)] = 0
    weights = opacity[..., None]
    fine = enlarged(image, SCALE * FINE) * (1 - weights) + colours[rows] * weights
    size = image.shape[1] * SCALE, image.shape[0] * SCALE
    return np.asarray(np.rint(cv2.resize(fine, size, interpolation=cv2.INTER_AREA)), np.uint8)


def _smooth(mask: Image, factor: int) -> Image:
    """The mask at a multiple of its size: every pixel gets the class with the largest interpolated share."""
    size = mask.shape[1] * factor, mask.shape[0] * factor
    best = np.zeros(size[::-1], np.float32)
    rows = np.zeros(size[::-1], np.uint8)
    for row in np.unique(mask):
        share = cv2.GaussianBlur((mask == row).astype(np.float32), (0, 0), 0.8)
        share = cv2.resize(share, size, interpolation=cv2.INTER_LINEAR)
        larger = share > best
        rows[larger], best[larger] = row, share[larger]
    return rows


def _outline(rows: Image, width: int) -> np.ndarray[tuple[int, int], np.dtype[np.bool_]]:
    """Pixels within `width` of another class [H, W]."""
    kernel = np.ones((width + 1, width + 1), np.uint8)
    return np.asarray(cv2.dilate(rows, kernel) != cv2.erode(rows, kernel))


def compose(
    rows: Sequence[Sequence[Image]], titles: Sequence[str], labels: Sequence[str], classes: Sequence[ClassInfo]
) -> Image:
    """Images of one size [H, W, 3] in a grid on white, with titles above, labels on the left and a legend below.

    Args:
        rows: The images of every row.
        titles: The title of every column.
        labels: The label of every row; empty ones take no space.
        classes: The classes of the legend.
    """
    height, width = rows[0][0].shape[:2]
    unit = width / 100
    """All distances are relative to the width of a column."""
    gap, top, below = round(1.5 * unit), round(11 * unit), round(13 * unit)
    left = round(9 * unit) if any(labels) else gap
    across = left + len(titles) * (width + gap)
    down = top + len(rows) * (height + gap) + below
    figure = Figure(figsize=(across / 100, down / 100), dpi=100)
    points = 0.72 * unit
    """One unit as a font size."""
    for column, title in enumerate(titles):
        centre = left + column * (width + gap) + width / 2
        _write(figure, title, (centre, top * 0.52), 5.5 * points, weight="bold")
    for row, label in enumerate(labels):
        _write(figure, label, (left * 0.5, top + row * (height + gap) + height / 2), 5.5 * points, rotation=90)
    _draw_legend(figure, classes, (left, down - below / 2 - gap / 2, across - gap - left), unit)
    canvas = FigureCanvasAgg(figure)
    canvas.draw()  # type: ignore[no-untyped-call]
    pixels = np.asarray(canvas.buffer_rgba())  # type: ignore[no-untyped-call]
    picture = np.ascontiguousarray(pixels[..., :3])
    for row, images in enumerate(rows):
        for column, image in enumerate(images):
            y, x = top + row * (height + gap), left + column * (width + gap)
            picture[y : y + height, x : x + width] = image
    return picture


def _draw_legend(figure: Figure, classes: Sequence[ClassInfo], place: tuple[float, float, float], unit: float) -> None:
    """Swatches with names, spread over one line from (x, y) of the given width in pixels from the upper left."""
    x, y, width = place
    names = [c.name for c in classes]
    space = 8.0
    """Swatch and gaps of one entry, in characters."""
    character = width / (sum(map(len, names)) + space * len(names))
    side = min(4.5 * unit, 3 * character)
    for name, entry in zip(names, classes, strict=True):
        colour = tuple(value / 255 for value in entry.colour)
        corner = x, figure.bbox.height - y - side / 2
        figure.add_artist(Rectangle(corner, side, side, color=colour, transform=None))
        size = min(5.0 * 0.72 * unit, 1.55 * 0.72 * character)
        _write(figure, name, (x + side * 1.35, y), size, horizontal="left")
        x += (len(name) + space) * character


def _write(
    figure: Figure,
    text: str,
    place: tuple[float, float],
    size: float,
    *,
    weight: str = "normal",
    rotation: float = 0,
    horizontal: str = "center",
) -> None:
    """Write text at a pixel position from the upper left corner."""
    x, y = place[0] / figure.bbox.width, 1 - place[1] / figure.bbox.height
    escaped = text.replace("$", r"\$")
    figure.text(x, y, escaped, size=size, weight=weight, rotation=rotation, ha=horizontal, va="center", color=INK)


def _colours(metadata: Metadata) -> Image:
    return lut_of({row: c.colour for row, c in enumerate(metadata.classes)})
