"""Default class colours: they can be told apart, and a class name has the same colour in every model.

`tools/palette.py` searches the table. Its first ten colours are safe for colour-blind viewers: those of Okabe and Ito
without black, and three of Paul Tol's. Common names have fixed colours; a hash chooses the colours of other names. If
another class of the model has the colour already, the name has its own sequence of alternatives, so that two models
with the same classes have the same colours.
"""

from __future__ import annotations

import hashlib
import itertools
from collections.abc import Collection, Iterator, Sequence

Colour = tuple[int, int, int]
"""Red, green and blue, from 0 to 255."""

BLACK: Colour = (0, 0, 0)
"""Colour of the first class, the background, which overlays do not draw."""
_HEX = """
    0072b2 d55e00 009e73 f0e442 cc79a7 56b4e9 e69f00 332288 882255 bbbbbb 5a4b00 00ffa5 004b2d ffd2ff c34b4b
    a5b478 007878 780fff d20f96 4b692d 00e1e1 a5e1c3 7887d2 ff694b d28787 2da5b4 693c78 a5e178 780f1e 965a78
    0f960f 874b4b b43cd2 ff3c69 c31e5a ff87ff 003cd2 1ed2a5 786996 8700a5 d2b45a ffa5d2 1e87ff a50f0f d2c3ff
    69b4a5 c3694b a54b00 ffb4b4 3c785a b496c3 ff4b96 b4d22d 0f87b4 78a53c 0000d2 b47887 87d296 965a3c 78875a
    960f3c c35a87 691e5a 78f0ff 2d3c87 69ff69 d26978 f0a587 874bf0 87f0e1 5a5a87 b400a5 ffd296 c3965a 00ffd2
    784b69 00b496 96692d a569a5 ff78d2 ff5a0f 5a4bc3 e15ad2 ff7896 783c4b 5ad269 e14b3c b45a69 f01e96 69690f
    a5961e b40069 873c1e 87c32d 008769 e187a5 0096f0 692d2d d22d78 d2d25a 69c3c3 d296e1 87b4ff 4b69d2 5a00a5
    2d5a1e 3cd2e1 009687 c3e1b4 691e78 c38778 4bd2c3 4bb4d2 69965a 3c1ef0 78d2b4 2d8796 ff78b4 3c874b 781e3c
    a54b2d a54ba5 781e0f a53c78 2d5a3c 961e2d 1e695a 6996c3 ffe169 f04bb4 d23cb4 5a4b87 691ec3 870f69 875a87
    f05a5a c3a569 692d4b b46969 f0b4e1 96783c a54b4b 3c78ff f096a5 004b3c 3cd287 961ee1 5ad2f0 1e9696 87e187
    5aa569 8778c3 694ba5 b478e1 4bc3f0 96f0c3 5aa587 00e1c3 1e7896 c39678 a51e87 5ac396 3c3c69 d2c378 3cff00
    87872d 3c78c3 961e96 004bf0 873c78 0fc369 00781e e12d1e c378c3 69e14b 6969e1 ff963c 4ba5a5 a578a5 ffb4a5
    9696e1 69f096 874b5a 0f5a2d 69f0d2 e1e1a5 78f0f0 a5e100 ffa500 c387a5 4b964b 4be1a5 693c5a 964bb4 5aa54b
    1ea596 2d69c3 a5875a 004b00 d21e00 b47878 e1783c e15a2d 691e96 b44b69 f0e187 d2004b 3cb487 78c34b 9687ff
    3c1eb4 5a5aff 1ea5d2 4b69a5 a55a87 9669d2 e1a5c3 ff1e1e 8778e1 3c3cb4 2d784b d27896 c369a5 0fc3b4 a52d5a
    e13c69 69c387 96e1d2 963c3c f096d2 c3d269 4bb4b4 870f2d 783cd2 00ff78 e178e1 0f3c78 695a96 2dc3a5 872d1e
    69693c f09696 4b4b96 d2b4ff d2961e b4f0b4 2d872d 78a5f0 78e1b4 2d5ae1 96c378 f03c4b ffa5c3 e1a54b b4f05a
"""
PALETTE: tuple[Colour, ...] = tuple((r, g, b) for r, g, b in map(bytes.fromhex, _HEX.split()))
"""Every colour is as far as possible from those before it."""
DISTINCT = 32
"""Names choose among this many colours at the start of the palette; a power of two."""

COMMON = {
    "car": 0, "vehicle": 0,
    "person": 1, "pedestrian": 1, "people": 1,
    "vegetation": 2, "tree": 2, "plant": 2,
    "sign": 3, "traffic sign": 3,
    "sidewalk": 4, "pavement": 4,
    "sky": 5,
    "cone": 6, "traffic cone": 6, "bicyclist": 6, "rider": 6, "cyclist": 6,
    "road": 7, "street": 7,
    "building": 8, "house": 8,
    "pole": 9,
    "crate": 10, "box": 10,
    "traffic light": 11,
    "fence": 13,
    "motorcycle": 14, "motorbike": 14,
    "wall": 15,
    "bus": 16,
    "ball": 17,
    "barrier": 18,
    "bicycle": 20,
    "truck": 22,
    "train": 25,
    "terrain": 27, "grass": 27,
}  # fmt: skip
"""Positions in the palette of common class names."""


def colours_for(names: Sequence[str], fixed: dict[str, Colour] | None = None) -> tuple[Colour, ...]:
    """Default colours of a class table; the first class is black.

    Args:
        names: Class names, background first. A common name keeps its colour; among the others, an earlier name takes
            precedence over a later one.
        fixed: Colours that are already chosen, by name.
    """
    chosen = dict(fixed or {})
    if names:
        chosen.setdefault(names[0], BLACK)
    taken = {BLACK, *chosen.values()}
    for name in sorted((n for n in names if n not in chosen), key=lambda name: _plain(name) not in COMMON):
        chosen[name] = free_colour(name, taken)
        taken.add(chosen[name])
    return tuple(chosen[name] for name in names)


def free_colour(name: str, taken: Collection[Colour]) -> Colour:
    """The first colour of a name's sequence that is not taken."""
    return next(colour for colour in _sequence(_plain(name)) if colour not in taken)


def _plain(name: str) -> str:
    """The name without differences in case, underscores and hyphens."""
    return " ".join(name.casefold().replace("_", " ").replace("-", " ").split())


def _sequence(name: str) -> Iterator[Colour]:
    """The colour of a common name, the distinct colours in an order that the name determines, then all others."""
    if name in COMMON:
        yield PALETTE[COMMON[name]]
    digest = hashlib.sha256(name.encode("utf-8", "surrogatepass")).digest()
    start, stride = digest[0], digest[1] | 1  # an odd stride visits all of a power of two
    yield from (PALETTE[(start + n * stride) % DISTINCT] for n in range(DISTINCT))
    yield from PALETTE[DISTINCT:]
    yield from map(voc_colour, itertools.count(1))


def voc_colour(index: int) -> Colour:
    """The colour of a class id as PASCAL VOC assigns it: bits of the id spread over R, G and B; 0 is black.

    Ids of 24 bits have different colours.
    """
    channels = [0, 0, 0]
    for bit in range(8):
        for channel in range(3):
            channels[channel] |= (index >> channel & 1) << (7 - bit)
        index >>= 3
    return channels[0], channels[1], channels[2]
