"""The rules of the pre-flight check, as pure functions that return problems."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from difflib import get_close_matches
from pathlib import Path

from rcil.core.errors import did_you_mean
from rcil.core.palette import free_colour
from rcil.data.check import FEW_IMAGES, FEW_PIXELS, Problem
from rcil.data.types import ClassSpec
from rcil.model.metadata import ClassInfo, Metadata
from rcil.site.recipe import is_hidden

MAX_CLASSES = 255
"""Class rows are bytes, and 255 means ignore."""
MIN_IMAGES = 2
"""One image to train on, one to choose the best epoch."""
MIN_SIDE = 32


def model_problems(path: Path, metadata: Metadata) -> list[Problem]:
    """Check whether a step can start from this model."""
    if metadata.kind == "backbone":
        text = "is a pretrained backbone without classes: train a first step with `rcil train`"
        return [Problem("error", str(path), text)]
    if metadata.rejected is not None:
        return [Problem("warning", str(path), f"is marked as rejected: {metadata.rejected}")]
    return []


def name_problems(wanted: Sequence[str], site: Sequence[str], old: Sequence[str]) -> list[Problem]:
    """Check the class names.

    Args:
        wanted: Names of the classes to add.
        site: Names of the site's classes, background first.
        old: Names of the model's classes, background first.
    """
    problems = []
    for name in dict.fromkeys(wanted):
        if text := _refusal(name, site, old):
            problems.append(Problem("error", f"class {name}", text))
        elif twin := _twin(name, old):
            text = f"the model has a class '{twin}', which differs in case only"
            problems.append(Problem("warning", f"class {name}", text))
        if wanted.count(name) > 1:
            problems.append(Problem("error", f"class {name}", "is named twice"))
    if site[0] in old[1:]:
        text = "is the first class of the site, which must be background, but the model has it as another class"
        problems.append(Problem("error", f"class {site[0]}", text))
    if len(old) + len(wanted) > MAX_CLASSES:
        text = f"{len(old)} old and {len(wanted)} new classes exceed the limit of {MAX_CLASSES}"
        problems.append(Problem("error", "model", text))
    for name in site[1:]:
        if name not in (*old, *wanted):
            close = _closest(name, [*old[1:], *wanted])
            meant = f". Did you mean '{close}'?" if close else ""
            text = f"is neither a class of the model nor being added: its pixels count as background{meant}"
            problems.append(Problem("warning", f"class {name}", text))
    return problems


def _refusal(name: str, site: Sequence[str], old: Sequence[str]) -> str:
    """The reason why a class cannot be added; empty if it can."""
    if name in (site[0], old[0]) or name.casefold() == "background":
        return "is the background class, which every model has"
    if name in old:
        return "is already a class of the model"
    if name not in site:
        return f"is not a class of the site. {did_you_mean(name, site[1:])}"
    return ""


def _twin(name: str, names: Sequence[str]) -> str:
    """The name that differs only in case and surrounding spaces; empty if there is none."""
    return next((n for n in names if n.strip().casefold() == name.strip().casefold()), "")


def _closest(name: str, names: Sequence[str]) -> str:
    """The most similar name, ignoring case; empty if none is similar."""
    folded = {n.strip().casefold(): n for n in names}
    close = get_close_matches(name.strip().casefold(), folded, n=1, cutoff=0.75)
    return folded[close[0]] if close else ""


def new_classes(
    wanted: Sequence[str], site: Sequence[ClassSpec], metadata: Metadata
) -> tuple[tuple[ClassInfo, ...], list[Problem]]:
    """Class table entries of the new classes: the next ids, and the colours of the site unless they are taken."""
    taken = {c.colour for c in metadata.classes}
    first = max(c.id for c in metadata.classes) + 1
    colours = {spec.name: spec.colour for spec in site}
    infos: list[ClassInfo] = []
    problems = []
    for index, name in enumerate(wanted):
        colour = colours[name]
        if colour in taken:
            colour = free_colour(name, taken)
            text = f"its colour is used by another class of the model; the new colour is {' '.join(map(str, colour))}"
            problems.append(Problem("warning", f"class {name}", text))
        taken.add(colour)
        infos.append(ClassInfo(name=name, id=first + index, colour=colour, step=metadata.step + 1))
    return tuple(infos), problems


def amount_problems(amounts: Mapping[str, tuple[int, int]]) -> list[Problem]:
    """Check the number of images and pixels of every new class in the training split."""
    problems = []
    for name, (images, pixels) in amounts.items():
        text = f"{pixels} pixels in {images} training images"
        if images < MIN_IMAGES:
            problems.append(Problem("error", f"class {name}", f"{text}: too few; label at least {FEW_IMAGES} images"))
        elif images < FEW_IMAGES or pixels < FEW_PIXELS:
            problems.append(Problem("warning", f"class {name}", f"only {text}: the class may not be learned"))
    return problems


def size_problems(sizes: Sequence[tuple[int, int]], crop: int, scale: float) -> list[Problem]:
    """Check whether the training images (height, width), resized by `scale`, fill the crops."""
    largest = max((max(size) * scale for size in sizes), default=crop)
    if largest < crop / 2:
        text = f"crop {crop} is more than twice as large as the largest image ({largest:.0f} pixels at scale {scale:g})"
        return [Problem("error", "training.crop", f"{text}: crops would be mostly padding; use a smaller --crop")]
    sides = [min(size) * scale for size in sizes]
    tiny, small = sum(s < MIN_SIDE for s in sides), sum(MIN_SIDE <= s < crop / 2 for s in sides)
    problems = []
    if tiny:
        problems.append(Problem("warning", f"{tiny} of {len(sides)} images", f"smaller than {MIN_SIDE} pixels"))
    if small:
        text = f"smaller than half the crop of {crop} pixels, so that much of a crop is padding: use a smaller --crop"
        problems.append(Problem("warning", f"{small} of {len(sides)} images", text))
    return problems


def hidden_problems(hidden: Sequence[str], old: int, metadata: Metadata, method: str) -> list[Problem]:
    """A warning if the images show few old classes and the checkpoint does not know what their features look like."""
    if metadata.features is not None or method != "rcil-plus" or not is_hidden(len(hidden), old):
        return []
    text = (
        f"few images show {', '.join(hidden)}, and the checkpoint has no statistics of their features, so they may be "
        "forgotten: add images that show them, use --strict, or fit statistics to labelled images with: rcil refit"
    )
    return [Problem("warning", "old classes", text)]


def background_problems(shares: Mapping[str, float], method: str) -> list[Problem]:
    """Warn about old classes in the background (name to share); the losses of most methods allow for them."""
    if not shares or method != "fine-tuning":
        return []
    listed = ", ".join(f"{name} {share:.1%}" for name, share in shares.items())
    text = f"contains old classes ({listed} of its pixels, by the old model), which fine-tuning will forget: use rcil"
    return [Problem("warning", "background", text)]
