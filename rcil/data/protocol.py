"""Continual protocols as pure functions: which classes a step teaches, which images it sees, what its labels say.

In an X-Y protocol the first step has background and X classes, every later one Y more. The labels of a step know its
own classes only; whatever else is in an image, learned before or to be learned later, is background. In a domain
protocol every step labels all classes, on images of its own domains: cities, weathers, cameras.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from importlib import resources
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from rcil.core.errors import ConfigError, did_you_mean
from rcil.data.types import IGNORE, Sample

BACKGROUND = 0
Setting = Literal["overlapped", "disjoint"]


@dataclass(frozen=True)
class ClassStep:
    """One step of a class- or domain-incremental protocol, in the dataset's class ids."""

    index: int
    classes: tuple[int, ...]
    """The classes that this step adds; step 0 includes background, a later domain step adds none."""
    seen: tuple[int, ...]
    """Everything taught so far, this step included; the place in this list is the classifier row."""
    domains: tuple[str, ...] = ()
    """Where the images of a domain step come from; empty in a class step."""

    @property
    def foreground(self) -> tuple[int, ...]:
        """What this step teaches apart from background."""
        return tuple(c for c in self.classes if c != BACKGROUND)


def class_steps(groups: Sequence[Sequence[int]]) -> tuple[ClassStep, ...]:
    """Steps from explicit groups of class ids; the first group starts with background."""
    flat = [c for group in groups for c in group]
    if not flat or flat[0] != BACKGROUND:
        raise ConfigError(f"the first step must start with background (0), not {flat[:1]}", "Put 0 first.")
    doubled = sorted({c for c in flat if flat.count(c) > 1})
    if doubled:
        raise ConfigError(f"classes {doubled} are taught twice", "Name every class in one step only.")
    if not all(groups) or (len(groups[0]) < 2):
        raise ConfigError("a step teaches nothing", "Give every step at least one class besides background.")
    if not all(0 <= c < IGNORE for c in flat):
        raise ConfigError(f"class ids must lie between 0 and {IGNORE - 1}", f"{IGNORE} means ignore.")
    steps: list[ClassStep] = []
    seen: tuple[int, ...] = ()
    for index, group in enumerate(groups):
        seen = (*seen, *group)
        steps.append(ClassStep(index, tuple(group), seen))
    return tuple(steps)


def split_order(order: Sequence[int], first: int, per_step: int) -> list[list[int]]:
    """Groups of an X-Y protocol: background and `first` classes, then `per_step` at a time.

    Args:
        order: All class ids, background first.
        first: X.
        per_step: Y; the classes after X must divide evenly, since a remainder is nearly always a slip.
    """
    rest = len(order) - 1 - first
    if first < 1 or per_step < 1 or rest < 0 or rest % per_step:
        raise ConfigError(
            f"{len(order) - 1} classes cannot be split {first}-{per_step}",
            "After the first X classes the rest must be a multiple of Y; uneven steps can be listed one by one.",
        )
    starts = range(1 + first, len(order), per_step)
    return [list(order[: 1 + first]), *(list(order[s : s + per_step]) for s in starts)]


def domain_steps(domains: Sequence[str], first: int, per_step: int) -> list[list[str]]:
    """Domains (cities, sequences) of each step; every step has all classes. The last step takes what is left."""
    if first < 1 or per_step < 1 or first > len(domains):
        raise ConfigError(
            f"{len(domains)} domains cannot be split {first}-{per_step}", f"Known domains: {', '.join(domains)}."
        )
    starts = range(first, len(domains), per_step)
    return [list(domains[:first]), *(list(domains[s : s + per_step]) for s in starts)]


def steps_of_domains(groups: Sequence[Sequence[str]], classes: int) -> tuple[ClassStep, ...]:
    """Steps from the domains of each: all `classes` come in step 0, later steps bring scenes only."""
    flat = [domain for group in groups for domain in group]
    doubled = sorted({domain for domain in flat if flat.count(domain) > 1})
    if doubled:
        raise ConfigError(f"domains {', '.join(doubled)} come twice", "Name every domain in one step only.")
    if not groups or not all(groups):
        raise ConfigError("a step has no domain", "Give every step at least one.")
    every = tuple(range(classes))
    return tuple(ClassStep(index, () if index else every, every, tuple(group)) for index, group in enumerate(groups))


def parse_split(text: str) -> tuple[int, int]:
    """`15-1` -> (15, 1)."""
    parts = text.split("-")
    if len(parts) != 2 or not all(p.isdecimal() and int(p) > 0 for p in parts):
        raise ConfigError(
            f"'{text}' is not a protocol", "Write X-Y, for example 15-1: 15 classes (or domains) first, then 1 a step."
        )
    return int(parts[0]), int(parts[1])


def load_order(name: str) -> list[int]:
    """A class order that ships with the package: `voc-a` to `voc-e`, the orders of the paper."""
    folder = resources.files("rcil.data") / "orders"
    known = sorted(entry.name.removesuffix(".txt") for entry in folder.iterdir() if entry.name.endswith(".txt"))
    if name not in known:
        raise ConfigError(f"unknown class order '{name}'", did_you_mean(name, known))
    return [int(word) for word in (folder / f"{name}.txt").read_text(encoding="utf-8").split()]


def select(step: ClassStep, present: Mapping[str, frozenset[int]], setting: Setting) -> list[str]:
    """Names of the images a step trains on, in the order of `present`.

    Args:
        step: The step.
        present: Class ids in each image's mask.
        setting: `overlapped`: every image with a pixel of a class of this step. `disjoint`: of those the ones without a
            class that is taught later, so that no image serves two steps.
    """
    wanted = frozenset(step.foreground)
    allowed = frozenset((*step.seen, BACKGROUND, IGNORE))
    return [name for name, ids in present.items() if ids & wanted and (setting == "overlapped" or ids <= allowed)]


def training_table(step: ClassStep) -> NDArray[np.uint8]:
    """Label of every mask value in training [256].

    The rows of this step's classes, background for all else. A domain step labels every class, so what is none of
    them is ignored: class 0 need not be a background there.
    """
    if step.domains:
        return _table(step, step.seen, IGNORE)
    return _table(step, step.classes, BACKGROUND)


def memory_table(step: ClassStep) -> NDArray[np.uint8]:
    """Label of every mask value [256] in an image that a later step trains on again: this step's classes and no more.

    What the labels of its time called background may be any class by now, so it is ignored.
    """
    table = _table(step, step.classes, IGNORE)
    table[BACKGROUND] = IGNORE
    return table


def _table(step: ClassStep, classes: Sequence[int], rest: int) -> NDArray[np.uint8]:
    table = np.full(256, rest, np.uint8)
    for row, class_id in enumerate(step.seen):
        if class_id in classes:
            table[class_id] = row
    table[IGNORE] = IGNORE
    return table


def by_domain(samples: Iterable[Sample], domains: Iterable[str]) -> list[Sample]:
    """The samples whose domain is one of `domains`, in their order."""
    wanted = set(domains)
    return [sample for sample in samples if sample.domain in wanted]
