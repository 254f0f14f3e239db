"""Sky and ground. The ground is drawn in world coordinates, so that its texture follows the perspective."""

from __future__ import annotations

from dataclasses import dataclass

import cv2
import numpy as np

from rcil.scenes.domains import Domain
from rcil.scenes.layout import Layout, Road
from rcil.scenes.objects.materials import GREY, TILE_SIDE, WHITE, Bytes, Colour, Floats, noise, pick, shade, vary
from rcil.scenes.occurrence import CLASSES

_YARD, _JOINT, _GRASS, _KERB, _TARMAC, _PATCH, _PAINT = range(7)
"""Ground materials."""
_CLASS_OF = np.array([0, 0, CLASSES.index("vegetation"), 0] + [CLASSES.index("road")] * 3, np.uint8)
"""Class id by material."""


@dataclass(frozen=True)
class _Surface:
    """World coordinates and noise of the pixels below the horizon, each [rows, W]."""

    x: Floats
    z: Floats
    fine: Floats
    coarse: Floats


def paint_backdrop(layout: Layout, domain: Domain) -> tuple[Floats, Bytes]:
    """Image [H, W, 3] and mask [H, W] of the scene without objects, shadows and lamps."""
    rng = np.random.default_rng(layout.ground_style)
    height, width = layout.view.size
    row = layout.view.horizon_row
    image = np.empty((height, width, 3), np.float32)
    image[:row] = _sky(rng, domain, row, width)
    x, z = layout.view.ground()
    fade = np.minimum(1, 14 / z[:, :1])
    surface = _Surface(x, z, _lay(noise(), x, z, 22, rng) * fade, _lay(noise(), x, z, 2.2, rng))
    materials = _materials(rng, layout, surface)
    clear = np.exp(-np.float32(domain.haze) * z[:, :1])
    image[row:] = _coat(rng, materials, surface, clear)
    image[row:] += np.array(domain.sky[1], np.float32) * (1 - clear)[..., None]
    mask = np.zeros((height, width), np.uint8)
    mask[row:] = _CLASS_OF[materials]
    return image, mask


def _sky(rng: np.random.Generator, domain: Domain, rows: int, width: int) -> Floats:
    """A gradient with clouds, and far hills that belong to no class."""
    top, low = (np.array(c, np.float32) for c in domain.sky)
    share = np.linspace(0, 1, rows, dtype=np.float32)[:, None]
    across, down = rng.integers(0, TILE_SIDE // 2, 2)
    clouds = noise()[down : down + TILE_SIDE // 2, across : across + TILE_SIDE // 2]
    clouds = np.asarray(cv2.resize(clouds, (width, rows), interpolation=cv2.INTER_LINEAR), np.float32)
    share = share + np.maximum(clouds, 0) * np.float32(rng.uniform(0.1, 0.4)) * (1 - share)
    ridge = np.interp(np.arange(width), np.linspace(0, width, 9), rng.uniform(0.0, 0.22, 9)) * rows
    bright = np.where(np.arange(rows)[::-1, None] < ridge, np.float32(0.8), np.float32(1))
    mix = cv2.merge([bright * (1 - share), bright * share])
    return np.asarray(cv2.transform(mix, np.stack([top, low], axis=1)), np.float32)


def _lay(tile: Floats, x: Floats, z: Floats, density: float, rng: np.random.Generator) -> Floats:
    """The tile repeated over the ground at `density` texels per metre."""
    offset = rng.random(2).astype(np.float32)
    repeats = np.float32(density / TILE_SIDE)
    across, ahead = x * repeats + offset[0], z[:, :1] * repeats + offset[1]
    # remap is faster for coordinates within the tile.
    across = (across - np.floor(across)) * np.float32(TILE_SIDE)
    ahead = np.broadcast_to((ahead - np.floor(ahead)) * np.float32(TILE_SIDE), x.shape)
    return np.asarray(cv2.remap(tile, across, ahead.copy(), cv2.INTER_LINEAR, borderMode=cv2.BORDER_WRAP), np.float32)


def _materials(rng: np.random.Generator, layout: Layout, surface: _Surface) -> Bytes:
    """The material of every ground pixel, [rows, W]."""
    x, z = surface.x, surface.z
    materials = np.zeros(x.shape, np.uint8)
    if rng.random() < 0.35:
        pitch = float(rng.uniform(1.2, 2.4))
        # Joints are thinner than a pixel from here on; drawing them would only alias.
        end = int(np.count_nonzero(z[:, 0] > 22))
        near = slice(end, None)
        materials[near][(np.mod(x[near], pitch) < 0.06) | (np.mod(z[near], pitch) < 0.08)] = _JOINT
    if layout.grass:
        # Far away the noise is flattened to its mean, or grass and yard would alternate from row to row.
        patches = _lay(noise(), x, z, 1.1, rng) + np.float32(0.25) * surface.coarse
        flat = np.minimum(1, (22 / z[:, :1]) ** 2)
        materials[patches * flat > rng.uniform(-0.3, 0.5)] = _GRASS
    if layout.road is not None:
        _pave(rng, layout.road, surface, materials)
    return materials


def _pave(rng: np.random.Generator, road: Road, surface: _Surface, materials: Bytes) -> None:
    """A road with kerbs, repairs, cracks and worn markings."""
    cos, sin = np.float32(np.cos(road.angle)), np.float32(np.sin(road.angle))
    dx, dz = surface.x - np.float32(road.x), surface.z - np.float32(road.z)
    away = np.abs(dx * cos - dz * sin)
    materials[away < road.half_width + 0.25] = _KERB
    tar = away < road.half_width
    materials[tar] = _TARMAC
    materials[tar & ((surface.coarse > 1.3) | (np.abs(surface.coarse - 0.2) < 0.012))] = _PATCH
    edge = road.half_width - 0.3
    lines = (away < 0.09) | ((np.abs(away - edge) < 0.06) if rng.random() < 0.6 else False)
    rows, columns = np.nonzero(lines & (surface.fine < 1.3))
    along = dx[rows, columns] * sin + dz[rows, columns] * cos
    drawn = (away[rows, columns] > 0.5) | (np.mod(along, 3.0) < 1.6)
    materials[rows[drawn], columns[drawn]] = _PAINT


def _coat(rng: np.random.Generator, materials: Bytes, surface: _Surface, clear: Floats) -> Floats:
    """Colour, grain and blotches of every ground pixel [rows, W, 3], attenuated by haze."""
    yard, tar, grass = pick(rng, "ground", 4), pick(rng, "road", 5), pick(rng, "grass", 9)
    paint = shade(WHITE, rng.uniform(0.7, 0.95))
    colours: list[Colour] = [yard, shade(yard, 0.7), grass, vary(rng, GREY, 5), tar, shade(tar, 0.78), paint]
    grain, blotch = rng.uniform(0.05, 0.11, 7).astype(np.float32), rng.uniform(0.04, 0.10, 7).astype(np.float32)
    grain[_GRASS] *= 1.8
    factor = (1 + grain.take(materials) * surface.fine + blotch.take(materials) * surface.coarse) * clear
    coat: Floats = np.array(colours, np.float32).take(materials, axis=0)
    return np.asarray(cv2.multiply(coat, cv2.merge([factor, factor, factor])), np.float32)
