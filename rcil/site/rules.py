"""The rules that are checked before a class is taught: small functions from facts to problems."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from difflib import get_close_matches
from pathlib import Path

from rcil.core.errors import did_you_mean
from rcil.core.files import sha256_of
from rcil.core.palette import colour_of
from rcil.data.check import FEW_IMAGES, FEW_PIXELS, Problem
from rcil.data.types import ClassSpec
from rcil.model.metadata import ClassInfo, Metadata

MOST_ROWS = 255
"""Class rows are bytes, and 255 means ignore."""
LEAST_IMAGES = 2
"""One to learn from, one to choose the best epoch by."""
SMALLEST_SIDE = 32


def model_problems(path: Path, metadata: Metadata) -> list[Problem]:
    """Whether a step can start from this model."""
    if metadata.kind == "backbone":
        text = "a pretrained backbone without classes: train a first step from it with rcil train"
        return [Problem("error", str(path), text)]
    if metadata.architecture.folded:
        return [Problem("error", str(path), f"folded, so nothing in it can learn: {_unfolded(path, metadata)}")]
    if metadata.rejected is not None:
        return [Problem("warning", str(path), f"marked as rejected: {metadata.rejected}")]
    return []


def _unfolded(path: Path, metadata: Metadata) -> str:
    """Which file to take instead of a folded one; looks for it in the same folder."""
    origin = next((e.parent_sha256 for e in reversed(metadata.lineage) if e.source == "fold"), None)
    if origin is None:
        return "give the checkpoint that it was folded from"
    for other in sorted(path.parent.glob("*.safetensors")):
        if other != path and sha256_of(other) == origin:
            return f"give {other}, from which it was folded"
    return f"give the checkpoint that it was folded from, SHA-256 {origin[:12]}..."


def name_problems(wanted: Sequence[str], site: Sequence[str], old: Sequence[str]) -> list[Problem]:
    """What the names say.

    Args:
        wanted: Names of the classes to teach.
        site: Names of the site's classes, background first.
        old: Names of the model's classes, background first.
    """
    problems = []
    for name in dict.fromkeys(wanted):
        if text := _refusal(name, site, old):
            problems.append(Problem("error", f"class {name}", text))
        elif twin := _twin(name, old):
            text = f"the model has a class '{twin}': two classes that differ in case only"
            problems.append(Problem("warning", f"class {name}", text))
        if wanted.count(name) > 1:
            problems.append(Problem("error", f"class {name}", "named twice"))
    if site[0] in old[1:]:
        text = "the first class of a site is its background, but the model knows it as another class"
        problems.append(Problem("error", f"class {site[0]}", text))
    if len(old) + len(wanted) > MOST_ROWS:
        text = f"{len(old)} classes and {len(wanted)} more are over the limit of {MOST_ROWS}"
        problems.append(Problem("error", "model", text))
    for name in site[1:]:
        if name not in (*old, *wanted):
            close = _closest(name, [*old[1:], *wanted])
            meant = f". Did you mean '{close}'?" if close else ""
            text = f"neither known to the model nor taught now: its pixels count as background{meant}"
            problems.append(Problem("warning", f"class {name}", text))
    return problems


def _refusal(name: str, site: Sequence[str], old: Sequence[str]) -> str:
    """Why a class cannot be taught; empty if it can."""
    if name in (site[0], old[0]) or name.casefold() == "background":
        return "is the background, which every model has"
    if name in old:
        return "known to the model already"
    if name not in site:
        return f"not a class of the site. {did_you_mean(name, site[1:])}"
    return ""


def _twin(name: str, names: Sequence[str]) -> str:
    """The name that differs in case and surrounding space only."""
    return next((n for n in names if n.strip().casefold() == name.strip().casefold()), "")


def _closest(name: str, names: Sequence[str]) -> str:
    """The name that is spelled most alike, whatever the case; empty if none is."""
    folded = {n.strip().casefold(): n for n in names}
    close = get_close_matches(name.strip().casefold(), folded, n=1, cutoff=0.75)
    return folded[close[0]] if close else ""


def new_classes(
    wanted: Sequence[str], site: Sequence[ClassSpec], metadata: Metadata
) -> tuple[tuple[ClassInfo, ...], list[Problem]]:
    """Rows for the new classes: the next ids, and the site's colours where they are free."""
    taken = {c.colour for c in metadata.classes}
    first = max(c.id for c in metadata.classes) + 1
    colours = {spec.name: spec.colour for spec in site}
    infos: list[ClassInfo] = []
    problems = []
    for place, name in enumerate(wanted):
        colour = colours[name]
        if colour in taken:
            colour = next(c for index in range(first, 2**12) if (c := colour_of(index)) not in taken)
            text = f"its colour belongs to another class of the model; it gets {' '.join(map(str, colour))}"
            problems.append(Problem("warning", f"class {name}", text))
        taken.add(colour)
        infos.append(ClassInfo(name=name, id=first + place, colour=colour, step=metadata.step + 1))
    return tuple(infos), problems


def amount_problems(amounts: Mapping[str, tuple[int, int]]) -> list[Problem]:
    """Whether there is enough of every new class; by name its images and pixels in the training split."""
    problems = []
    for name, (images, pixels) in amounts.items():
        text = f"{pixels} pixels in {images} training images"
        if images < LEAST_IMAGES:
            problems.append(Problem("error", f"class {name}", f"{text}: too few, label at least {FEW_IMAGES} images"))
        elif images < FEW_IMAGES or pixels < FEW_PIXELS:
            problems.append(Problem("warning", f"class {name}", f"only {text}: it may not be learned"))
    return problems


def size_problems(sizes: Sequence[tuple[int, int]], crop: int, scale: float) -> list[Problem]:
    """Whether the training images, by height and width, fill the crops when the network sees them at `scale`."""
    sides = [min(size) * scale for size in sizes]
    tiny, small = sum(s < SMALLEST_SIDE for s in sides), sum(SMALLEST_SIDE <= s < crop / 2 for s in sides)
    problems = []
    if tiny:
        problems.append(Problem("warning", f"{tiny} of {len(sides)} images", f"smaller than {SMALLEST_SIDE} pixels"))
    if small:
        text = f"less than half the crop of {crop} pixels: much of a crop is padding, use a smaller --crop"
        problems.append(Problem("warning", f"{small} of {len(sides)} images", text))
    return problems


def background_problems(shares: Mapping[str, float], method: str) -> list[Problem]:
    """Old classes in the background, by name and share: the losses of most methods allow for that."""
    if not shares or method != "fine-tuning":
        return []
    listed = ", ".join(f"{name} {share:.1%}" for name, share in shares.items())
    text = f"holds old classes ({listed} of its pixels, by the old model): fine-tuning will unlearn them, use rcil"
    return [Problem("warning", "background", text)]
