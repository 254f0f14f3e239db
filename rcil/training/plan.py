"""From a task and its data to what each step trains, validates and tests on."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from rcil.core.errors import ConfigError, did_you_mean
from rcil.core.log import log
from rcil.data.datasets import domains_of, open_dataset
from rcil.data.datasets.cityscapes import legacy_cut
from rcil.data.protocol import (
    BACKGROUND,
    ClassStep,
    by_domain,
    class_steps,
    domain_steps,
    load_order,
    parse_split,
    select,
    split_order,
    steps_of_domains,
)
from rcil.data.scan import present_classes
from rcil.data.site import read_site
from rcil.data.types import Sample, SegmentationData
from rcil.training.task import ProtocolSection, Task


@dataclass(frozen=True)
class Remembered:
    """A training image of an earlier step."""

    sample: Sample
    step: ClassStep
    """Whose labels it has."""


@dataclass(frozen=True)
class StepPlan:
    """One step."""

    step: ClassStep
    names: tuple[str, ...]
    """The classes that it adds; step 0 includes background, a later domain step adds none."""
    train: tuple[Sample, ...]
    validation: tuple[Sample, ...]
    """Held out of the training images: chooses the best epoch."""
    memory: tuple[Remembered, ...] = ()
    """Images of earlier steps that are trained on again."""

    @property
    def teaches(self) -> tuple[str, ...]:
        """What is new, for display: domains in a domain protocol, else classes."""
        return self.step.domains or self.names


@dataclass(frozen=True)
class Plan:
    """The whole run."""

    data: SegmentationData
    steps: tuple[StepPlan, ...]
    test: tuple[Sample, ...]

    @property
    def warnings(self) -> tuple[str, ...]:
        """What the user must know before believing the results."""
        seen = {sample.image for step in self.steps for sample in (*step.train, *step.validation)}
        leaked = sum(sample.image in seen for sample in self.test)
        if not leaked:
            return ()
        share = 100 * leaked / len(self.test)
        return (
            f"WARNING: {leaked} of {len(self.test)} test images ({share:.1f} %) are training images too; "
            "results will look better than they are",
        )


def make_plan(task: Task, *, joint: bool = False, record: bool = True) -> Plan:
    """Resolve a task; raises before any training if a step would have nothing to learn from.

    Args:
        task: What the user wants.
        joint: Teach everything in one step, for the upper bound.
        record: As in `read_site`.
    """
    section = task.data
    if section.kind == "site":
        data = read_site(section.root, seed=task.seed, record=record)
    else:
        data = open_dataset(section.kind, section.root)
    log.info("read %s: %s", section.root, ", ".join(f"{len(s)} {name}" for name, s in data.splits.items()))
    for split in (section.train, section.test):
        if split not in data.splits:
            raise ConfigError(f"{section.root} has no split '{split}'", did_you_mean(split, data.splits))
    if task.protocol.by_domain:
        return _plan_domains(task, data, joint=joint)
    if section.variant == "legacy":
        raise ConfigError("data.variant legacy is about domains", "Give protocol.domains, for example 11-5.")
    return _plan_classes(task, data, joint=joint)


def _plan_classes(task: Task, data: SegmentationData, *, joint: bool) -> Plan:
    """Steps that add classes, on the images that hold them."""
    groups = resolve_groups(task.protocol, data.names)
    if joint:
        groups = [[c for group in groups for c in group]]
    present = present_classes(data, task.data.train)
    samples = {sample.name: sample for sample in data.splits[task.data.train]}
    steps = []
    memory: list[Remembered] = []
    for step in class_steps(groups):
        chosen = [samples[name] for name in select(step, present, task.protocol.setting)]
        plan = _step_plan(task, data, step, chosen)
        steps.append(replace(plan, memory=tuple(memory)))
        memory += remember(plan, present, task.training.memory, task.seed)
    return Plan(data, tuple(steps), data.splits[task.data.test])


def remember(plan: StepPlan, present: Mapping[str, frozenset[int]], count: int, seed: int) -> list[Remembered]:
    """Up to `count` training images of every class of a step, background aside, drawn by name and seed."""
    kept: dict[str, Remembered] = {}
    drawn = sorted(plan.train, key=lambda sample: _draw("memory", sample.name, seed))
    for class_id in plan.step.classes:
        if class_id != BACKGROUND:
            holders = [sample for sample in drawn if class_id in present[sample.name]]
            kept |= {sample.name: Remembered(sample, plan.step) for sample in holders[:count]}
    return list(kept.values())


def _plan_domains(task: Task, data: SegmentationData, *, joint: bool) -> Plan:
    """Steps with all classes on the images of their domains.

    Results are on the test split whatever a step has seen. `legacy` has no test split: every step is tested on the
    images that the research code tests its last step on, which are those of its tables.
    """
    legacy = task.data.variant == "legacy"
    pool = data.splits["train"] + data.splits["val"] if legacy else data.splits[task.data.train]
    nowhere = [sample for sample in pool if not sample.domain]
    if nowhere:
        raise ConfigError(
            f"{len(nowhere)} images of {data.root} have no domain, first {nowhere[0].image}",
            'A site records domains in dataset.json, {"image_domains": {"train/NAME": "night"}}; Cityscapes has its '
            "cities; VOC and ADE20K have none.",
        )
    groups = resolve_domains(task.protocol, domains_of(task.data.kind, pool))
    if joint:
        groups = [[domain for group in groups for domain in group]]
    steps = []
    for step in steps_of_domains(groups, len(data.classes)):
        chosen = by_domain(pool, step.domains)
        steps.append(_step_plan(task, data, step, legacy_cut(chosen)[0] if legacy else chosen))
    everywhere = by_domain(pool, (domain for group in groups for domain in group))
    return Plan(data, tuple(steps), tuple(legacy_cut(everywhere)[1]) if legacy else data.splits[task.data.test])


def _step_plan(task: Task, data: SegmentationData, step: ClassStep, chosen: list[Sample]) -> StepPlan:
    """A step on its images, some of which are held out."""
    train, held_out = hold_out(chosen, task.seed, task.training.held_out)
    plan = StepPlan(step, tuple(data.names[c] for c in step.classes), train, held_out)
    if not plan.train or not plan.validation:
        what = "domain names" if step.domains else f"class names and the setting '{task.protocol.setting}'"
        raise ConfigError(
            f"step {step.index} ({', '.join(plan.teaches)}) has {len(chosen)} images: "
            "too few to train and hold some out",
            f"Check the {what}, or add images.",
        )
    return plan


def resolve_groups(protocol: ProtocolSection, names: tuple[str, ...]) -> list[list[int]]:
    """Class ids of each step, background first in step 0."""
    if protocol.split is not None:
        order = load_order(protocol.order) if protocol.order else list(range(len(names)))
        if len(order) != len(names):
            raise ConfigError(
                f"the order '{protocol.order}' has {len(order)} classes, the data {len(names)}",
                "Use it with its dataset.",
            )
        return split_order(order, *parse_split(protocol.split))
    assert protocol.steps is not None
    ids = {name: index for index, name in enumerate(names)}
    for name in (name for group in protocol.steps for name in group):
        if name not in ids:
            raise ConfigError(f"the data has no class '{name}'", did_you_mean(name, ids))
    groups = [[ids[name] for name in group if ids[name] != BACKGROUND] for group in protocol.steps]
    return [[BACKGROUND, *groups[0]], *groups[1:]]


def resolve_domains(protocol: ProtocolSection, domains: list[str]) -> list[list[str]]:
    """Domain names of each step.

    Args:
        protocol: With `domains` or `domain_steps`.
        domains: Those of the data, in the order that X-Y counts them in unless the protocol has its own.
    """
    wanted = protocol.domain_order or (name for group in protocol.domain_steps or () for name in group)
    for name in wanted:
        if name not in domains:
            raise ConfigError(f"the data has no domain '{name}'", did_you_mean(name, domains))
    if protocol.domain_steps is not None:
        return [list(group) for group in protocol.domain_steps]
    assert protocol.domains is not None
    order = list(protocol.domain_order or domains)
    if sorted(order) != sorted(domains):
        missing = ", ".join(sorted(set(domains).difference(order))) or "none, but one comes twice"
        raise ConfigError(
            f"protocol.domain_order must name every domain once; missing: {missing}",
            "To leave domains out, list those of each step under protocol.domain_steps.",
        )
    return domain_steps(order, *parse_split(protocol.domains))


def hold_out(samples: Sequence[Sample], seed: int, share: float) -> tuple[tuple[Sample, ...], tuple[Sample, ...]]:
    """Images to train on and images held out; of several, one changes sides where chance left a side empty."""
    held = [sample for sample in samples if is_held_out(sample.name, seed, share)]
    train = [sample for sample in samples if not is_held_out(sample.name, seed, share)]
    if len(samples) > 1 and not held:
        held.append(train.pop())
    elif len(samples) > 1 and not train:
        train.append(held.pop())
    return tuple(train), tuple(held)


def is_held_out(name: str, seed: int, share: float) -> bool:
    """Depends on name and seed alone, so that a run and its resumption agree and new images move nothing."""
    return _draw("held out", name, seed) < share


def _draw(purpose: str, name: str, seed: int) -> float:
    """A number in [0, 1) that is as good as random."""
    digest = hashlib.sha256(f"{purpose}/{seed}/{name}".encode()).digest()
    return int.from_bytes(digest[:8], "big") / 2**64
