"""Weather and camera effects: lamps, rain, blur, exposure, vignette and noise."""

from __future__ import annotations

import cv2
import numpy as np

from rcil.scenes.domains import Domain
from rcil.scenes.types import Bytes, Floats

_GREY = np.array((0.299, 0.587, 0.114), np.float32)
_DARKNESS = 0.17
"""Share of daylight between the lamps."""


def lamp_light(rng: np.random.Generator, domain: Domain, size: tuple[int, int]) -> Floats | None:
    """Lamp light per pixel [H, W]; None by day."""
    if domain.lamps == 0:
        return None
    height, width = size
    light = np.full(size, _DARKNESS, np.float32)
    for _ in range(domain.lamps):
        x, y = rng.uniform(0, 1) * width, rng.uniform(0.35, 0.95) * height
        wide, high = rng.uniform(0.14, 0.32) * width, rng.uniform(0.14, 0.30) * height
        across = np.exp(-(((np.arange(width, dtype=np.float32) - x) / wide) ** 2))
        down = np.exp(-(((np.arange(height, dtype=np.float32) - y) / high) ** 2))
        light += np.float32(rng.uniform(0.35, 0.7)) * down[:, None] * across
    return light


def exposure(rng: np.random.Generator, domain: Domain) -> float:
    """Draw the exposure of an image or a clip."""
    return float(rng.uniform(*domain.exposure))


def record(rng: np.random.Generator, domain: Domain, light: Floats, lamps: Floats | None, gain: float) -> Bytes:
    """Record the light as an 8-bit image [H, W, 3]; `light` is overwritten."""
    if lamps is not None:
        light *= cv2.merge([lamps, lamps, lamps])
    if domain.rain:
        streaks = _rain(rng, domain.rain, light.shape)
        light += cv2.merge([streaks, streaks, streaks])
    if domain.blur:
        sigma = domain.blur * light.shape[1] / 320
        light = np.asarray(cv2.GaussianBlur(light, (0, 0), sigma), np.float32)
    light = np.asarray(cv2.transform(light, _colour_matrix(domain, gain)), np.float32)
    if domain.vignette:
        falloff = _vignette(domain.vignette, light.shape)
        light *= cv2.merge([falloff, falloff, falloff])
    # One call adds, rounds and saturates to 8 bits.
    return np.asarray(cv2.add(light, _grain(rng, domain.noise, light.shape), dtype=cv2.CV_8U), np.uint8)


def _grain(rng: np.random.Generator, sigma: float, shape: tuple[int, ...]) -> Floats:
    """Zero-mean sensor noise: the sum of two uniform distributions, almost normal and ten times cheaper."""
    first, second = rng.integers(0, 256, (2, *shape), np.uint8)
    each = sigma / 104.5
    return np.asarray(cv2.addWeighted(first, each, second, each, -255 * each, dtype=cv2.CV_32F), np.float32)


def _colour_matrix(domain: Domain, gain: float) -> Floats:
    """Exposure, contrast about mid-grey, saturation and colour cast as one [3, 4] matrix on RGB."""
    mix = domain.saturation * np.eye(3, dtype=np.float32) + (1 - domain.saturation) * _GREY[None]
    factor = np.array(domain.cast, np.float32)[:, None]
    matrix = factor * mix * np.float32(domain.contrast * gain)
    lift = factor * np.float32((1 - domain.contrast) * 118)
    return np.concatenate([matrix, lift], axis=1).astype(np.float32)


def _rain(rng: np.random.Generator, density: int, shape: tuple[int, ...]) -> Floats:
    """Slanted streaks, [H, W]."""
    height, width = shape[:2]
    streaks = np.zeros((height, width), np.uint8)
    number = density * height * width // 10_000
    slant, long = rng.uniform(-0.3, 0.3), height * 0.06
    starts = rng.uniform((0, -long), (width, height), (number, 2))
    lengths = rng.uniform(0.4, 1.0, (number, 1)) * long
    ends = starts + lengths * np.array((slant, 1.0))
    lines = np.stack([starts, ends], axis=1).round().astype(np.int32)
    cv2.polylines(streaks, list(lines), False, 46, 1, cv2.LINE_AA)
    return streaks.astype(np.float32)


def _vignette(strength: float, shape: tuple[int, ...]) -> Floats:
    """Light falloff towards the corners, [H, W]."""
    height, width = shape[:2]
    down = np.linspace(-1, 1, height, dtype=np.float32)[:, None] ** 2
    across = np.linspace(-1, 1, width, dtype=np.float32)[None] ** 2
    return np.asarray(1 - np.float32(strength / 2) * (down + across), np.float32)
