"""Render the objects of a layout over its backdrop: first shadows, then objects from far to near."""

from __future__ import annotations

from dataclasses import dataclass

import cv2
import numpy as np

from rcil.scenes.domains import Domain
from rcil.scenes.layout import Layout, Thing
from rcil.scenes.objects.kinds import KINDS
from rcil.scenes.objects.pen import Pen
from rcil.scenes.types import Bytes, Floats
from rcil.scenes.view import View

_CONTACT = 0.45
"""Light lost under an object in any weather."""
_VEILED = 0.1
"""Minimum sun for cast shadows."""


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
