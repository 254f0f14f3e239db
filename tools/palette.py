"""Search the default palette: `python -m tools.palette` prints the table of `rcil/core/palette.py`.

The first ten colours are those of Okabe and Ito without black, and three of Paul Tol's. Every further colour is the one
of a grid of sRGB colours that is farthest from all before it. The distance of two colours is the smallest CIEDE2000
difference with normal vision, deuteranopia and protanopia; the differences of the latter two count twice, because no
large set of colours is as distinct with them.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from skimage.color import deltaE_ciede2000

Floats = NDArray[np.float64]

FIRST = (
    "0072b2", "d55e00", "009e73", "f0e442", "cc79a7", "56b4e9", "e69f00", "332288", "882255", "bbbbbb",
)  # fmt: skip
AVOIDED = ("000000", "ffffff", "ff00ff")
"""Background, paper, and the colour of pixels that prelabel is unsure about."""
COUNT = 255
VISIONS = {
    "normal": np.eye(3),
    "deuteranopia": np.array(
        [[0.367322, 0.860646, -0.227968], [0.280085, 0.672501, 0.047413], [-0.011820, 0.042940, 0.968881]]
    ),
    "protanopia": np.array(
        [[0.152286, 1.052583, -0.204868], [0.114503, 0.786281, 0.099216], [-0.003882, -0.048116, 1.051998]]
    ),
}
"""How colours are seen: matrices for linear RGB of Machado, Oliveira and Fernandes (2009), at full severity."""
WEIGHTS = {"normal": 1.0, "deuteranopia": 2.0, "protanopia": 2.0}


def cielab(colours: Floats, vision: str = "normal") -> Floats:
    """CIELAB (D65) of sRGB colours [N, 3] from 0 to 255, as seen with a kind of colour vision, [N, 3]."""
    scaled = colours / 255
    linear = np.where(scaled <= 0.04045, scaled / 12.92, ((scaled + 0.055) / 1.055) ** 2.4)
    linear = (linear @ VISIONS[vision].T).clip(0, 1)
    to_xyz = np.array(
        [[0.4124564, 0.3575761, 0.1804375], [0.2126729, 0.7151522, 0.0721750], [0.0193339, 0.1191920, 0.9503041]]
    )
    xyz = linear @ to_xyz.T / np.array([0.95047, 1.0, 1.08883])
    root = np.where(xyz > 216 / 24389, np.cbrt(xyz), (24389 / 27 * xyz + 16) / 116)
    x, y, z = root.T
    return np.stack([116 * y - 16, 500 * (x - y), 200 * (y - z)], axis=1)


def search(count: int = COUNT) -> list[tuple[int, int, int]]:
    """The table: `FIRST`, then always the colour that is farthest from all before it."""
    levels = np.arange(0, 256, 15.0)
    grid = np.stack(np.meshgrid(levels, levels, levels, indexing="ij"), -1).reshape(-1, 3)
    lightness, red, blue = cielab(grid).T
    grid = grid[(lightness > 25) & (lightness < 90) & (np.hypot(red, blue) > 25)]  # greys are hard to see on a street
    spaces = {vision: cielab(grid, vision) for vision in VISIONS}
    nearest = np.full(len(grid), np.inf)

    def exclude(colour: Floats) -> None:
        for vision, weight in WEIGHTS.items():
            gaps = deltaE_ciede2000(spaces[vision], cielab(colour[None], vision)) * weight
            np.minimum(nearest, gaps, out=nearest)

    for text in (*AVOIDED, *FIRST):
        exclude(_parsed(text))
    table = [_parsed(text) for text in FIRST]
    while len(table) < count:
        table.append(grid[nearest.argmax()])
        exclude(table[-1])
    return [(int(r), int(g), int(b)) for r, g, b in table]


def _parsed(text: str) -> Floats:
    return np.array(list(bytes.fromhex(text)), np.float64)


if __name__ == "__main__":
    words = ["{:02x}{:02x}{:02x}".format(*colour) for colour in search()]
    print("\n".join("    " + " ".join(words[start : start + 15]) for start in range(0, len(words), 15)))
