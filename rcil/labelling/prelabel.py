"""Label new images with a model, as a site folder to review."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from rcil import defaults
from rcil.core.documents import write_json
from rcil.core.drawing import legend, lut_of, overlay
from rcil.core.files import check_writable, copy_file, scratch
from rcil.core.images import SUFFIXES, Image, read_rgb, write_image
from rcil.core.log import DryRun, Progress
from rcil.core.mask_classes import names_chunk
from rcil.core.masks import write_mask
from rcil.core.reading import DataError, creating, existing_folder, readable, require_free
from rcil.data.exporters import check_format, export_predictions
from rcil.data.site import palette_of, write_classes
from rcil.data.types import IGNORE
from rcil.hardware.devices import choose_device
from rcil.inference import Rows, load
from rcil.model.metadata import ClassInfo

UNSURE = (255, 0, 255)
"""Colour of ignored pixels in overlays."""


class Labeller(Protocol):
    """A model that labels images."""

    @property
    def classes(self) -> tuple[ClassInfo, ...]:
        """The classes in row order."""

    def segment_with_confidence(self, image: Image, *, scale: float) -> tuple[Rows, NDArray[np.float32]]:
        """Class rows [H, W] of an RGB image [H, W, 3], and the probability of the class of each pixel."""


def prelabel(
    model: Path,
    images: Path,
    output: Path,
    *,
    min_confidence: float = defaults.MIN_CONFIDENCE,
    scale: float | None = None,
    overlays: bool = False,
    kind: str | None = None,
    device: str = "auto",
    labeller: Labeller | None = None,
    progress: Progress = lambda done, total: None,
) -> dict[str, Any]:
    """Create a site folder from images and predictions; returns the content of `prelabel.json`.

    Args:
        model: A checkpoint of any form.
        images: A folder of images, or a site folder, whose splits are kept.
        output: The site folder, or the folder for the labelling tool, which is created atomically.
        min_confidence: Pixels with a lower probability become 255 (ignore).
        scale: Factor by which images are resized for the network; by default that of its training.
        overlays: Also draw the masks over the images.
        kind: Write for a labelling tool instead: one of `rcil.data.exporters.FORMATS`.
        device: Device of the network: `auto`, `cpu`, `cuda` or `cuda:N`.
        labeller: `model`, if it is no checkpoint; it has its own device.
        progress: Called with the number of finished images and their total.
    """
    chosen = choose_device(device)
    require_free(output)
    if kind is not None:
        check_format(kind, polygons=False)
    found = find_images(images)
    if labeller is None:
        loaded = load(model).folded.to(chosen)
        labeller, scale = loaded, loaded.metadata.training_scale if scale is None else scale
    scale = 1.0 if scale is None else scale
    entries = []
    with creating(output) as folder, _site_for(folder, kind) as site:
        for done, (name, path) in enumerate(found.items(), 1):
            entries.append(_label(labeller, name, path, site, min_confidence, scale, overlays))
            progress(done, len(found))
        document = {
            "model": str(model),
            "min_confidence": min_confidence,
            "scale": scale,
            "classes_file": write_classes(site, labeller.classes),
            "images": sorted(entries, key=lambda entry: (entry["mean_confidence"], entry["image"])),
        }
        if kind is not None:
            export_predictions(site, folder, kind)
            if overlays:
                (site / "overlays").replace(folder / "overlays")
        write_json(folder / "prelabel.json", document)
    return document


@contextlib.contextmanager
def _site_for(folder: Path, kind: str | None) -> Iterator[Path]:
    """The folder of the site: the output itself, or one that exists until it is exported."""
    if kind is None:
        yield folder
        return
    with scratch(folder.parent, f"{folder.name}-site") as site:
        yield site


def dry_run(model: Path, images: Path, output: Path, *, overlays: bool, kind: str | None = None) -> DryRun:
    """Report what `prelabel` would do."""
    if kind is not None:
        check_format(kind, polygons=False)
    require_free(output)
    check_writable(output)
    found = find_images(images)
    metadata = load(model).metadata
    size = sum(path.stat().st_size for path in found.values())
    made = "image, mask and overlay" if overlays else "image and mask"
    return DryRun(
        {str(model): f"step {metadata.step}, {len(metadata.classes)} classes", str(images): f"{len(found)} images"},
        {str(output): f"{made} for each of {len(found)}, class names, prelabel.json{f', for {kind}' if kind else ''}"},
        {"disk": f"{size / 2**20:.1f} MiB for the copied images"},
    )


def find_images(folder: Path) -> dict[str, Path]:
    """Images below a folder by their name in the new site folder, a path without suffix.

    The splits of a site folder are kept. Names of other subfolders become part of the file name, since subfolders would
    be read as splits.
    """
    existing_folder(folder, "Give a folder of images, or a site folder.")
    is_site = (folder / "images").is_dir()
    root = folder / "images" if is_site else folder
    with readable(root):
        files = sorted(p for p in root.rglob("*") if p.suffix.lower() in SUFFIXES and p.is_file())
    if not files:
        raise DataError(f"{root} holds no images", f"Images end with {', '.join(SUFFIXES)}.")
    found: dict[str, Path] = {}
    for path in files:
        name = ("/" if is_site else "__").join(path.relative_to(root).with_suffix("").parts)
        if name in found:
            raise DataError(f"{found[name]} and {path} would share the mask {name}.png", "Rename one of them.")
        found[name] = path
    return found


def _label(
    model: Labeller, name: str, path: Path, site: Path, min_confidence: float, scale: float, overlays: bool
) -> dict[str, Any]:
    """Copy one image, write its mask and return the confidence of the model."""
    image = read_rgb(path)
    rows, confidence = model.segment_with_confidence(image, scale=scale)
    mask = np.where(confidence < min_confidence, np.uint8(IGNORE), rows)
    copy_file(path, site / "images" / f"{name}{path.suffix.lower()}")
    names = {row: c.name for row, c in enumerate(model.classes)}
    write_mask(site / "masks" / f"{name}.png", mask, palette_of(model.classes), chunk=names_chunk(names))
    if overlays:
        write_image(site / "overlays" / f"{name}.png", draw(image, mask, model.classes))
    shares = np.bincount(mask.ravel(), minlength=256) / mask.size
    return {
        "image": name,
        "mean_confidence": float(confidence.mean()),
        "unsure": float(shares[IGNORE]),
        "classes": {c.name: float(shares[row]) for row, c in enumerate(model.classes) if shares[row]},
    }


def draw(image: Image, mask: Image, classes: Sequence[ClassInfo]) -> Image:
    """Draw the mask over its image with a legend below; ignored pixels are magenta, background is not drawn."""
    lut = lut_of({**{row: c.colour for row, c in enumerate(classes)}, IGNORE: UNSURE})
    picture = overlay(image, mask, lut, ignore=0)
    seen = [(c.name, c.colour) for row, c in enumerate(classes) if row and row in np.unique(mask)]
    return np.vstack([picture, legend([*seen, ("unsure", UNSURE)], picture.shape[1])])
