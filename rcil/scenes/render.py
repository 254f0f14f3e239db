"""Render a layout over its backdrop (shadows, then objects from far to near), and record it with a camera."""

from __future__ import annotations

from dataclasses import dataclass

import cv2
import numpy as np

from rcil.scenes.domains import Domain
from rcil.scenes.layout import Layout, Thing, View
from rcil.scenes.objects.kinds import KINDS
from rcil.scenes.objects.materials import Bytes, Floats
from rcil.scenes.objects.pen import Pen

_CONTACT = 0.45
"""Light lost under an object in any weather."""
_VEILED = 0.1
"""Minimum sun for cast shadows."""
_GREY = np.array((0.299, 0.587, 0.114), np.float32)
_DARKNESS = 0.17
"""Share of daylight between the lamps."""


@dataclass(frozen=True)
class CutOut:
    """A drawn object that can be blended into the image."""

    pen: Pen
    thing: Thing
    ground: tuple[float, float]
    """Pixel below the object; differs from the pen's foot while it is in the air."""


def render(layout: Layout, domain: Domain, backdrop: tuple[Floats, Bytes]) -> tuple[Floats, Bytes]:
    """Draw the objects of a layout, with their shadows, into the backdrop that `paint_backdrop` made of it.

    Returns:
        Image [H, W, 3] before the camera, and mask [H, W], which does not depend on the domain.
    """
    image, mask = backdrop
    far_to_near = sorted(layout.things, key=lambda thing: -thing.z)
    cut_outs = [c for c in (_cut_out(layout.view, thing) for thing in far_to_near) if c is not None]
    row = layout.view.horizon_row
    light = _shadows(layout, cut_outs, domain.sun)[row:]
    image[row:] *= cv2.merge([light, light, light])
    for cut_out in cut_outs:
        _lay_over(image, mask, cut_out, domain, layout.sun[0])
    return image, mask


def _cut_out(view: View, thing: Thing) -> CutOut | None:
    """Draw an object as seen from the camera; None if it is out of view."""
    kind, scale = KINDS[thing.kind], view.scale(thing.z)
    x, y = view.foot(thing.x, thing.z)
    pen = Pen((x, y - thing.lift * scale), scale, kind.reach, view.size)
    if not pen.inside:
        return None
    kind.draw(pen, np.random.default_rng(thing.style), thing.phase)
    return CutOut(pen, thing, (x, y))


def _shadows(layout: Layout, cut_outs: list[CutOut], strength: float) -> Floats:
    """Share of light that reaches the ground, [H, W]: soft contact shadows, and cast ones when the sun shines."""
    height, width = layout.view.size
    contact = np.zeros((height, width), np.uint8)
    cast = np.zeros((height, width), np.uint8)
    for cut_out in cut_outs:
        left, _, wide, _ = cv2.boundingRect(cut_out.pen.alpha)
        middle = (round(cut_out.pen.left + left + wide / 2), round(cut_out.ground[1]))
        axes = (round(wide * 0.55) + 1, round(min(wide * 0.12, 0.5 * cut_out.pen.scale)) + 1)
        cv2.ellipse(contact, middle, axes, 0, 0, 360, 255, -1)
        if strength > _VEILED:
            np.maximum(cast, _projected(layout, cut_out), out=cast)
    soft = cv2.blur(contact, (7, 7)).astype(np.float32)
    light = 1 - np.float32(_CONTACT / 255) * soft
    if strength > _VEILED:
        light *= 1 - np.float32(strength / 255) * cv2.blur(cast, (3, 3)).astype(np.float32)
    return light


def _projected(layout: Layout, cut_out: CutOut) -> Bytes:
    """The outline thrown onto the ground by the sun, [H, W]: a shear about the ground point."""
    height, width = layout.view.size
    right, away = layout.sun
    flat = away * layout.view.camera_height / cut_out.thing.z
    pen, (_, foot) = cut_out.pen, cut_out.ground
    up = foot - pen.top
    matrix = np.array([[1, -right, pen.left + right * up], [0, flat, foot - flat * up]], np.float32)
    return np.asarray(cv2.warpAffine(pen.alpha, matrix, (width, height)), np.uint8)


def _lay_over(image: Floats, mask: Bytes, cut_out: CutOut, domain: Domain, sun_side: float) -> None:
    """Blend one object into the image, with directional light and haze."""
    pen = cut_out.pen
    left, top, width, height = cv2.boundingRect(pen.alpha)
    if width == 0:
        return
    alpha = pen.alpha[top : top + height, left : left + width]
    rgb = pen.rgb[top : top + height, left : left + width]
    rows, columns = slice(pen.top + top, pen.top + top + height), slice(pen.left + left, pen.left + left + width)
    cover = (alpha * np.float32(1 / 255))[..., None]
    clear = np.float32(np.exp(-domain.haze * cut_out.thing.z))
    # The shadow falls to sun_side, so the light comes from the other one.
    slope = np.float32(0.35 * domain.sun * np.clip(sun_side, -1, 1))
    light = clear * (1 - slope * np.linspace(-1, 1, width, dtype=np.float32)[:, None])
    region = image[rows, columns]
    region *= 1 - cover
    region += rgb * light
    region += cover * (np.array(domain.sky[1], np.float32) * (1 - clear))
    mask[rows, columns][alpha > 127] = KINDS[cut_out.thing.kind].class_id


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
