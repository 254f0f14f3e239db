"""The domains: weather and camera parameters."""

from __future__ import annotations

from dataclasses import dataclass

from rcil.scenes.objects.materials import Colour


@dataclass(frozen=True)
class Domain:
    """How a scene is lit and recorded, independent of its objects."""

    sky: tuple[Colour, Colour]
    """Colour at the top of the image and at the horizon; the latter is also the colour of haze."""
    exposure: tuple[float, float]
    """Range of the exposure factor."""
    sun: float = 0.0
    """Strength of cast shadows, from 0 (none) to 1 (black)."""
    haze: float = 0.002
    """Share of light lost per metre."""
    contrast: float = 1.0
    saturation: float = 1.0
    cast: Colour = (1.0, 1.0, 1.0)
    """Colour cast: a factor per channel."""
    lamps: int = 0
    """Number of lamps; with lamps, the rest of the scene is dark."""
    rain: int = 0
    """Streaks per 10 000 pixels."""
    blur: float = 0.0
    """Sigma in pixels of a 320 pixel wide image."""
    vignette: float = 0.0
    """Light lost in the corners."""
    noise: float = 3.0
    """Standard deviation of sensor noise, in grey levels."""


DOMAINS = {
    "sunny": Domain(
        sky=((92, 142, 214), (196, 212, 226)), exposure=(0.85, 1.15), sun=0.55, contrast=1.08, cast=(1.04, 1.0, 0.93),
    ),
    "overcast": Domain(
        sky=((168, 172, 178), (206, 208, 210)), exposure=(0.85, 1.05), sun=0.08, haze=0.006,
        contrast=0.9, saturation=0.7, cast=(0.97, 1.0, 1.03),
    ),
    "rain": Domain(
        sky=((128, 134, 142), (170, 175, 180)), exposure=(0.75, 0.95), haze=0.032,
        contrast=0.82, saturation=0.6, cast=(0.95, 1.0, 1.05), rain=14, blur=0.5, noise=5.0,
    ),
    "night": Domain(
        sky=((14, 18, 34), (34, 36, 52)), exposure=(0.8, 1.1), haze=0.004,
        saturation=0.75, cast=(1.06, 0.98, 0.88), lamps=4, noise=10.0,
    ),
    "oldcam": Domain(
        sky=((150, 168, 190), (205, 208, 200)), exposure=(0.95, 1.25), sun=0.3, haze=0.004,
        contrast=0.8, saturation=0.85, cast=(0.94, 1.08, 0.84), blur=1.3, vignette=0.45, noise=6.0,
    ),
}  # fmt: skip
"""Domains by name, in the order of a domain-incremental protocol."""
