"""Generate one scene by seed and index."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum

import numpy as np

from rcil.core.errors import ConfigError, did_you_mean
from rcil.core.images import MAX_PIXELS, is_too_large
from rcil.defaults import IMAGE_SIZE
from rcil.scenes.domains import DOMAINS
from rcil.scenes.ground import paint_backdrop
from rcil.scenes.layout import plan
from rcil.scenes.objects.materials import Bytes
from rcil.scenes.occurrence import draw_counts
from rcil.scenes.render import exposure, lamp_light, record, render

MIN_SIDE = 48
"""Minimum pixels per side; most objects would vanish in smaller images."""
MAX_SIDE = 32_000
"""Maximum pixels per side; OpenCV's remap uses 16-bit coordinates."""
DOMAIN_RUN = 5
"""Consecutive images that share a domain: one round of the splits, so that every split has every domain."""


@dataclass(frozen=True)
class Scene:
    """One image with its mask."""

    image: Bytes
    """[H, W, 3] RGB."""
    mask: Bytes
    """[H, W] class ids, the index into `CLASSES`."""
    domain: str


def make_scene(seed: int, index: int, *, size: tuple[int, int] = IMAGE_SIZE, domain: str | None = None) -> Scene:
    """Generate an image with its mask; the same arguments always give the same result.

    The mask depends only on seed, index and size, so that scenes can be compared across domains.

    Args:
        seed: Number of the site.
        index: Number of the image of that site.
        size: Height and width.
        domain: A name of `DOMAINS`; by default the domains alternate by index.
    """
    check_size(size)
    name = domain_of(index) if domain is None else domain
    check_domains([name])
    layout_rng, camera_rng = stream(seed, index, Stream.LAYOUT), stream(seed, index, Stream.CAMERA)
    counts = draw_counts(layout_rng)
    layout = plan(layout_rng, size, counts, clutter=int(layout_rng.integers(1, 5)))
    setting = DOMAINS[name]
    light, mask = render(layout, setting, paint_backdrop(layout, setting))
    gain, lamps = exposure(camera_rng, setting), lamp_light(camera_rng, setting, size)
    return Scene(record(camera_rng, setting, light, lamps, gain), mask, name)


def domain_of(index: int, domains: Sequence[str] = tuple(DOMAINS)) -> str:
    """The domain of an image if the given domains alternate."""
    return domains[index // DOMAIN_RUN % len(domains)]


def check_size(size: tuple[int, int]) -> None:
    """Raise if the image size is too small or too large."""
    if min(size) < MIN_SIDE:
        raise ConfigError(f"size {size[0]}x{size[1]} is too small", f"Use at least {MIN_SIDE} pixels per side.")
    if max(size) > MAX_SIDE or is_too_large(size):
        raise ConfigError(
            f"size {size[0]}x{size[1]} is too large",
            f"Use at most {MAX_SIDE} pixels per side and {MAX_PIXELS // 10**6} megapixels.",
        )


def check_domains(names: Sequence[str]) -> None:
    """Raise for an empty list or unknown names."""
    if not names:
        raise ConfigError("no domain was given", f"Known: {', '.join(DOMAINS)}.")
    for name in names:
        if name not in DOMAINS:
            raise ConfigError(f"unknown domain '{name}'", did_you_mean(name, DOMAINS))


class Stream(IntEnum):
    """Purposes of random streams, so that a change of the weather does not move objects."""

    LAYOUT = 0
    CAMERA = 1
    CLIP_LAYOUT = 2
    CLIP_CAMERA = 3


def stream(seed: int, index: int, purpose: Stream) -> np.random.Generator:
    """The random generator for one purpose of one image; equal arguments give equal draws."""
    if seed < 0 or index < 0:
        raise ConfigError(f"seed {seed} and index {index} must not be negative", "Use 0 or a positive whole number.")
    return np.random.default_rng(np.random.SeedSequence([seed, index], spawn_key=(int(purpose),)))
