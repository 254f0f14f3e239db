"""One scene by seed and index."""

from __future__ import annotations

from collections.abc import Sequence
from enum import IntEnum

import numpy as np

from rcil.core.errors import ConfigError, did_you_mean
from rcil.core.image_header import MAX_PIXELS, is_too_large
from rcil.scenes.camera import exposure, lamp_light, record
from rcil.scenes.domains import DOMAINS
from rcil.scenes.ground import paint_backdrop
from rcil.scenes.layout import plan
from rcil.scenes.occurrence import draw_counts
from rcil.scenes.render import render
from rcil.scenes.types import Scene

SIZE = (240, 320)
"""Default height and width."""
SMALLEST = 48
"""Pixels per side below which most objects would vanish."""
LARGEST = 32_000
"""Pixels per side; OpenCV counts them in 16 bits where it bends a picture."""
DOMAIN_RUN = 5
"""Neighbouring images that share a domain: one round of the splits, so every split sees every domain."""


def make_scene(seed: int, index: int, *, size: tuple[int, int] = SIZE, domain: str | None = None) -> Scene:
    """One picture with its mask, the same for the same arguments whatever else was made before.

    The mask depends on seed, index and size only, so a scene can be compared across domains.

    Args:
        seed: The site.
        index: The image of that site.
        size: Height and width.
        domain: A name of `DOMAINS`; by default they take turns by index.
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
    """The domain of an image when the given ones take turns."""
    return domains[index // DOMAIN_RUN % len(domains)]


def check_size(size: tuple[int, int]) -> None:
    """Refuse what is too small to show anything, or too large to be drawn and read again."""
    if min(size) < SMALLEST:
        raise ConfigError(f"size {size[0]}x{size[1]} is too small", f"Use at least {SMALLEST} pixels per side.")
    if max(size) > LARGEST or is_too_large(size):
        raise ConfigError(
            f"size {size[0]}x{size[1]} is too large",
            f"Use at most {LARGEST} pixels per side and {MAX_PIXELS // 10**6} megapixels.",
        )


def check_domains(names: Sequence[str]) -> None:
    """Refuse an empty list and unknown names."""
    if not names:
        raise ConfigError("no domain was given", f"Known: {', '.join(DOMAINS)}.")
    for name in names:
        if name not in DOMAINS:
            raise ConfigError(f"unknown domain '{name}'", did_you_mean(name, DOMAINS))


class Stream(IntEnum):
    """One stream per purpose, so that a change of weather leaves the objects where they are."""

    LAYOUT = 0
    CAMERA = 1
    CLIP_LAYOUT = 2
    CLIP_CAMERA = 3


def stream(seed: int, index: int, purpose: Stream) -> np.random.Generator:
    """The generator of one purpose of one image; equal arguments give equal draws in any process."""
    if seed < 0 or index < 0:
        raise ConfigError(f"seed {seed} and index {index} must not be negative", "Use 0 or a positive whole number.")
    return np.random.default_rng(np.random.SeedSequence([seed, index], spawn_key=(int(purpose),)))
