"""Generate a site folder: images and masks in splits, class names, a description and a clip."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np

from rcil import defaults
from rcil.core.documents import parse_json
from rcil.core.errors import ConfigError, RcilError, did_you_mean
from rcil.core.files import building, check_writable, write_file
from rcil.core.images import write_image
from rcil.core.log import DryRun
from rcil.core.masks import write_mask
from rcil.core.palette import colours_for
from rcil.core.reading import require_free
from rcil.data.site import palette_of
from rcil.data.types import ClassSpec
from rcil.scenes.clip import FPS, make_clip, write_clip
from rcil.scenes.domains import DOMAINS
from rcil.scenes.occurrence import CLASSES
from rcil.scenes.scene import check_domains, check_size, domain_of, make_scene

DESCRIPTION = "dataset.json"
VERSION = 1
"""Increased whenever the same seed gives other pixels."""
QUALITY = 92
"""JPEG quality; masks are always lossless."""
SPLIT_CYCLE = ("train", "train", "val", "train", "test")
"""The split of an image by its index, so that a larger site extends a smaller one."""


@dataclass(frozen=True)
class SiteSummary:
    """Summary of a generated site."""

    root: Path
    splits: dict[str, int]
    """Number of images per split."""
    domains: dict[str, int]
    """Number of images per domain."""
    classes: dict[str, int]
    """Number of images that contain each class, by name."""
    frames: int
    """Number of frames of the clip."""


def make_site(
    target: Path,
    *,
    seed: int = defaults.SEED,
    images: int = defaults.IMAGES,
    size: tuple[int, int] = defaults.IMAGE_SIZE,
    domains: Sequence[str] = tuple(DOMAINS),
    image_format: Literal["jpg", "png"] = "jpg",
    frames: int = defaults.FRAMES,
    only: str | None = None,
) -> SiteSummary:
    """Generate a site folder atomically.

    Image n is `make_scene(seed, n)` for any number of images, unless other domains are given.

    Args:
        target: The site folder; must not exist or must be empty.
        seed: Number of the site.
        images: Number of images over all splits, at least one round of `SPLIT_CYCLE`.
        size: Height and width of images and clip, both even.
        domains: Names of `DOMAINS`, which alternate; the clip shows the first.
        image_format: Suffix of the images; masks are PNG.
        frames: Length of the clip; 0 for no clip.
        only: The class that somebody labels who needs only this one: training masks name no other, and training images
            without it are left out. The other splits stay complete, to measure with.
    """
    _check(seed, images, size, domains, image_format, frames, only)
    folder = target.resolve()
    with _explained(folder), building(folder) as root:
        numbered = {f"{_split_of(index)}/{index:06d}": domain_of(index, domains) for index in range(images)}
        listing, seen = _write_images(root, numbered, seed, size, image_format, only)
        if frames:
            clip = make_clip(seed, frames, size, domain=domains[0])
            write_clip(root / "clip.mp4", root / "clip_masks", clip, FPS, size)
        write_file(root / "classes.txt", "".join(f"{name}\n" for name in CLASSES))
        options = {"images": images, "size": list(size), "domains": list(domains), "image_format": image_format}
        description = {
            "generator": "rcil.scenes",
            "version": VERSION,
            "seed": seed,
            "options": {**options, "frames": frames, **({} if only is None else {"only": only})},
            "clip": {"frames": frames, "fps": FPS, "domain": domains[0]} if frames else None,
            "image_domains": listing,
        }
        write_file(root / DESCRIPTION, json.dumps(description, indent=1) + "\n")
    splits = dict(Counter(name.split("/")[0] for name in listing))
    return SiteSummary(target, splits, dict(Counter(listing.values())), seen, frames)


def made_with(root: Path) -> dict[str, Any]:
    """The options of a generated site; empty for other folders."""
    try:
        return dict(parse_json((root / DESCRIPTION).read_bytes())["options"])
    except (OSError, ValueError, KeyError, TypeError):
        return {}


def dry_run(
    target: Path, *, seed: int, images: int, size: tuple[int, int], frames: int, only: str | None = None
) -> DryRun:
    """Report what `make_site` would do."""
    _check(seed, images, size, tuple(DOMAINS), "jpg", frames, only)
    with _explained(target):
        check_writable(target)
    splits = Counter(_split_of(index) for index in range(images))
    shape = f"{size[0]}x{size[1]}"
    clip = {"clip": f"{frames} frames of {shape}"} if frames else {}
    made = ", ".join(f"{count} {split}" for split, count in splits.items())
    made += "" if only is None else f" (train: those that show {only})"
    return DryRun({}, {str(target): f"{made} images of {shape} with masks, classes.txt, dataset.json", **clip})


def _check(
    seed: int,
    images: int,
    size: tuple[int, int],
    domains: Sequence[str],
    image_format: str,
    frames: int,
    only: str | None,
) -> None:
    """Raise for impossible options before anything is drawn."""
    check_size(size)
    check_domains(domains)
    if seed < 0:
        raise ConfigError(f"seed {seed} is negative", "Use 0 or a positive whole number.")
    if images < len(SPLIT_CYCLE):
        raise ConfigError(f"{images} images do not fill all splits", f"Ask for at least {len(SPLIT_CYCLE)}.")
    if frames < 0:
        raise ConfigError(f"a clip cannot have {frames} frames", "Use 0 for no clip.")
    if size[0] % 2 or size[1] % 2:
        raise ConfigError(f"size {size[0]}x{size[1]} is odd", "MPEG-4 needs an even height and width.")
    if image_format not in ("jpg", "png"):
        raise ConfigError(f"unknown image format '{image_format}'", "Use jpg or png.")
    if only is not None and only not in CLASSES[1:]:
        raise ConfigError(f"unknown class '{only}'", did_you_mean(only, CLASSES[1:]))


@contextmanager
def _explained(target: Path) -> Iterator[None]:
    """Convert errors of the file system into `RcilError`s."""
    require_free(target)
    try:
        yield
    except OSError as error:
        raise RcilError(
            f"cannot write {target}: {error.strerror or error}", "Check free space and permissions."
        ) from error


def _write_images(
    root: Path, listing: dict[str, str], seed: int, size: tuple[int, int], image_format: str, only: str | None
) -> tuple[dict[str, str], dict[str, int]]:
    """Write every listed image with its mask, except for training images without the `only` class to be labelled.

    Returns what is left of the listing, and how many masks show each class.
    """
    written: dict[str, str] = {}
    seen = dict.fromkeys(CLASSES, 0)
    palette = palette_of(list(map(ClassSpec, CLASSES, colours_for(CLASSES))))
    for index, (name, domain) in enumerate(listing.items()):
        scene = make_scene(seed, index, size=size, domain=domain)
        mask = scene.mask
        if only is not None and _split_of(index) == "train":
            mask = np.where(mask == CLASSES.index(only), mask, np.uint8(0))
            if not mask.any():
                continue
        written[name] = domain
        write_image(root / "images" / f"{name}.{image_format}", scene.image, quality=QUALITY)
        write_mask(root / "masks" / f"{name}.png", mask, palette)
        for class_id in np.flatnonzero(np.bincount(mask.ravel())):
            seen[CLASSES[class_id]] += 1
    if not any(name.startswith("train/") for name in written):
        raise ConfigError(f"no training image shows {only}", "Generate more images.")
    return written, seen


def _split_of(index: int) -> str:
    return SPLIT_CYCLE[index % len(SPLIT_CYCLE)]
