"""A table that maps colours of HDR video (BT.2020 with PQ or HLG) to SDR (BT.709).

The steps are those of the ITU's reports: PQ and HLG are decoded to light as in BT.2100, with a display of 1000 cd/m2;
the brightest of the three components is compressed to 203 cd/m2, SDR white in BT.2408, with the curve of BT.2390;
colours outside BT.709 are clipped; and the result is encoded for a display with the gamma of BT.1886.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
from numpy.typing import NDArray

PQ, HLG = 16, 18
"""Codes of the transfer functions in H.273, which FFmpeg uses."""
PEAK, WHITE = 1000.0, 203.0
"""Luminance in cd/m2 of the brightest HDR and SDR colours."""
GAMMA = 2.4
SIZE = 33
"""Number of table entries per component."""

Floats = NDArray[np.float64]
_M1, _M2, _C1, _C2, _C3 = 2610 / 16384, 2523 / 32, 3424 / 4096, 2413 / 128, 2392 / 128
_A, _B, _C = 0.17883277, 0.28466892, 0.55991073
_LUMA = np.array([0.2627, 0.6780, 0.0593])
_TO_709 = np.array([[1.6605, -0.5876, -0.0728], [-0.1246, 1.1329, -0.0083], [-0.0182, -0.1006, 1.1187]])


def pq_to_light(code: Floats) -> Floats:
    """Luminance in cd/m2 of PQ values from 0 to 1."""
    power = np.power(code, 1 / _M2)
    return np.asarray(10000 * np.power(np.maximum(power - _C1, 0) / (_C2 - _C3 * power), 1 / _M1))


def light_to_pq(light: Floats) -> Floats:
    """PQ values of luminances in cd/m2."""
    power = np.power(np.maximum(light, 0) / 10000, _M1)
    return np.asarray(np.power((_C1 + _C2 * power) / (1 + _C3 * power), _M2))


def hlg_to_light(code: Floats) -> Floats:
    """Luminance in cd/m2 of HLG colours [..., 3] from 0 to 1."""
    scene = np.where(code <= 0.5, code**2 / 3, (np.exp((code - _C) / _A) + _B) / 12)
    return np.asarray(PEAK * scene * np.power(scene @ _LUMA, 0.2)[..., None])


def compressed(light: Floats) -> Floats:
    """Compress luminances up to `PEAK` to at most `WHITE`; dark ones stay as they are."""
    peak, white = (float(light_to_pq(np.array(value))) for value in (PEAK, WHITE))
    limit = white / peak
    code = np.minimum(light_to_pq(light) / peak, 1)
    knee = 1.5 * limit - 0.5
    at = np.maximum(code - knee, 0) / (1 - knee)
    curve = (2 * at**3 - 3 * at**2 + 1) * knee + (at**3 - 2 * at**2 + at) * (1 - knee) + (3 * at**2 - 2 * at**3) * limit
    return pq_to_light(np.where(code < knee, code, curve) * peak)


def to_sdr(code: Floats, transfer: int) -> Floats:
    """SDR colours [..., 3] of HDR colours [..., 3], both from 0 to 1."""
    light = pq_to_light(code) if transfer == PQ else hlg_to_light(code)
    brightest = np.maximum(light.max(axis=-1, keepdims=True), 1e-6)
    shown = light * compressed(brightest) / brightest @ _TO_709.T
    return np.asarray(np.power(np.clip(shown / WHITE, 0, 1), 1 / GAMMA))


def write_cube(path: Path, transfer: int) -> None:
    """Write the table as a `.cube` file, in which red changes fastest."""
    steps = np.linspace(0, 1, SIZE)
    blue, green, red = np.meshgrid(steps, steps, steps, indexing="ij")
    table = to_sdr(np.stack([red, green, blue], axis=-1).reshape(-1, 3), transfer)
    lines = "\n".join(f"{r:.6f} {g:.6f} {b:.6f}" for r, g, b in table)
    path.write_text(f"LUT_3D_SIZE {SIZE}\n{lines}\n", encoding="ascii")
