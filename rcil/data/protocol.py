"""Continual learning protocols as pure functions: the classes, images and labels of each step.

In an X-Y protocol, the first step has background and X classes, and every later step adds Y classes. The labels of a
step contain only its own classes; earlier and later classes are labelled as background. In a domain protocol, every
step labels all classes, on images of its own domains, such as cities, weather conditions or cameras.
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
    """The classes that the step adds; step 0 includes background, later domain steps add none."""
    seen: tuple[int, ...]
    """All classes up to and including this step, in the order of the classifier rows."""
    domains: tuple[str, ...] = ()
    """Domains of the images of a domain step; empty in a class step."""

    @property
    def foreground(self) -> tuple[int, ...]:
        """The added classes without background."""
        return tuple(c for c in self.classes if c != BACKGROUND)


def class_steps(groups: Sequence[Sequence[int]]) -> tuple[ClassStep, ...]:
    """Steps from explicit groups of class ids; the first group starts with background."""
    flat = [c for group in groups for c in group]
    if not flat or flat[0] != BACKGROUND:
        raise ConfigError(f"the first step must start with background (0), not {flat[:1]}", "Put 0 first.")
    doubled = sorted({c for c in flat if flat.count(c) > 1})
    if doubled:
        raise ConfigError(f"classes {doubled} are in two steps", "Name every class in one step only.")
    if not all(groups) or (len(groups[0]) < 2):
        raise ConfigError("a step has no classes", "Give every step at least one class besides background.")
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
        per_step: Y; must divide the remaining classes evenly, since a remainder is almost always a mistake.
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
    """Domains (such as cities) of each step; the last step has the remaining ones."""
    if first < 1 or per_step < 1 or first > len(domains):
        raise ConfigError(
            f"{len(domains)} domains cannot be split {first}-{per_step}", f"Known domains: {', '.join(domains)}."
        )
    starts = range(first, len(domains), per_step)
    return [list(domains[:first]), *(list(domains[s : s + per_step]) for s in starts)]


def steps_of_domains(groups: Sequence[Sequence[str]], classes: int) -> tuple[ClassStep, ...]:
    """Steps from groups of domains. All `classes` are in step 0; later steps add domains only."""
    flat = [domain for group in groups for domain in group]
    doubled = sorted({domain for domain in flat if flat.count(domain) > 1})
    if doubled:
        raise ConfigError(f"domains {', '.join(doubled)} are in two steps", "Name every domain in one step only.")
    if not groups or not all(groups):
        raise ConfigError("a step has no domains", "Give every step at least one.")
    every = tuple(range(classes))
    return tuple(ClassStep(index, () if index else every, every, tuple(group)) for index, group in enumerate(groups))


def parse_split(text: str) -> tuple[int, int]:
    """`15-1` -> (15, 1)."""
    parts = text.split("-")
    if len(parts) != 2 or not all(p.isdecimal() and int(p) > 0 for p in parts):
        raise ConfigError(
            f"'{text}' is not a protocol",
            "Write X-Y, for example 15-1: 15 classes (or domains) first, then 1 per step.",
        )
    return int(parts[0]), int(parts[1])


def load_order(name: str) -> list[int]:
    """Load a class order of the paper that ships with the package: `voc-a` to `voc-e`."""
    folder = resources.files("rcil.data") / "orders"
    known = sorted(entry.name.removesuffix(".txt") for entry in folder.iterdir() if entry.name.endswith(".txt"))
    if name not in known:
        raise ConfigError(f"unknown class order '{name}'", did_you_mean(name, known))
    return [int(word) for word in (folder / f"{name}.txt").read_text(encoding="utf-8").split()]


def select(step: ClassStep, present: Mapping[str, frozenset[int]], setting: Setting) -> list[str]:
    """Names of the training images of a step, in the order of `present`.

    Args:
        step: The step.
        present: Class ids in each image's mask.
        setting: `overlapped`: every image with a class of this step. `disjoint`: only those without classes of later
            steps, so that no image is in two steps.
    """
    wanted = frozenset(step.foreground)
    allowed = frozenset((*step.seen, BACKGROUND, IGNORE))
    return [name for name, ids in present.items() if ids & wanted and (setting == "overlapped" or ids <= allowed)]


def training_table(step: ClassStep) -> NDArray[np.uint8]:
    """Training label of every mask value [256].

    Classes of this step get their rows, all others background. A domain step labels all classes and ignores other
    values, since class 0 need not be background there.
    """
    if step.domains:
        return _table(step, step.seen, IGNORE)
    return _table(step, step.classes, BACKGROUND)


def memory_table(step: ClassStep) -> NDArray[np.uint8]:
    """Label of every mask value [256] in an image of this step that a later step replays.

    Background is ignored, since it may contain classes of other steps.
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
    """The samples of the given domains, in their order."""
    wanted = set(domains)
    return [sample for sample in samples if sample.domain in wanted]
