"""The training, validation and test images of each step of a task."""

from __future__ import annotations

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
from rcil.data.scan import present_classes, with_void_background
from rcil.data.site import read_site
from rcil.data.types import Sample, SegmentationData
from rcil.tasks.held_out import choose_held_out, draw, hold_out
from rcil.tasks.task import ProtocolSection, Task


@dataclass(frozen=True)
class Remembered:
    """A training image of an earlier step."""

    sample: Sample
    step: ClassStep
    """The step whose labels the image has."""


@dataclass(frozen=True)
class StepPlan:
    """One step."""

    step: ClassStep
    names: tuple[str, ...]
    """The classes that the step adds; step 0 includes background, later domain steps add none."""
    train: tuple[Sample, ...]
    validation: tuple[Sample, ...]
    """Held-out training images, which choose the best epoch unless the last one is kept."""
    memory: tuple[Remembered, ...] = ()
    """Replayed images of earlier steps."""

    @property
    def teaches(self) -> tuple[str, ...]:
        """The new domains or classes, for display."""
        return self.step.domains or self.names


@dataclass(frozen=True)
class Plan:
    """The whole run."""

    data: SegmentationData
    steps: tuple[StepPlan, ...]
    test: tuple[Sample, ...]

    @property
    def warnings(self) -> tuple[str, ...]:
        """Warnings about the validity of the results."""
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
    """Resolve a task. Raises before any training if a step would have too few images.

    Args:
        task: The task.
        joint: Train all classes in one step, as an upper bound.
        record: See `read_site`.
    """
    section = task.data
    if section.kind == "site":
        data = read_site(section.root, seed=task.seed, record=record)
    else:
        data = open_dataset(section.kind, section.root)
    if section.void_background:
        data = with_void_background(data)
    log.info("read %s: %s", section.root, ", ".join(f"{len(s)} {name}" for name, s in data.splits.items()))
    for split in (section.train, section.test):
        if split not in data.splits:
            raise ConfigError(f"{section.root} has no split '{split}'", did_you_mean(split, data.splits))
    if task.protocol.by_domain:
        return _plan_domains(task, data, joint=joint)
    if section.variant == "legacy":
        raise ConfigError("data.variant legacy needs a domain protocol", "Give protocol.domains, for example 11-5.")
    return _plan_classes(task, data, joint=joint)


def _plan_classes(task: Task, data: SegmentationData, *, joint: bool) -> Plan:
    """Steps that add classes, with the images that contain them."""
    groups = resolve_groups(task.protocol, data.names)
    present = present_classes(data, task.data.train)
    images = [select(step, present, task.protocol.setting) for step in class_steps(groups)]
    held = choose_held_out(images, task.seed, task.training.held_out)
    if joint:
        groups = [[c for group in groups for c in group]]
    samples = {sample.name: sample for sample in data.splits[task.data.train]}
    steps = []
    memory: list[Remembered] = []
    for step in class_steps(groups):
        chosen = [samples[name] for name in select(step, present, task.protocol.setting)]
        plan = _step_plan(task, data, step, chosen, held)
        steps.append(replace(plan, memory=tuple(memory)))
        memory += remember(plan, present, task.training.memory, task.seed)
    return Plan(data, tuple(steps), data.splits[task.data.test])


def remember(plan: StepPlan, present: Mapping[str, frozenset[int]], count: int, seed: int) -> list[Remembered]:
    """Choose up to `count` training images of every foreground class of a step, by name and seed."""
    kept: dict[str, Remembered] = {}
    drawn = sorted(plan.train, key=lambda sample: draw("memory", sample.name, seed))
    for class_id in plan.step.classes:
        if class_id != BACKGROUND:
            holders = [sample for sample in drawn if class_id in present[sample.name]]
            kept |= {sample.name: Remembered(sample, plan.step) for sample in holders[:count]}
    return list(kept.values())


def _plan_domains(task: Task, data: SegmentationData, *, joint: bool) -> Plan:
    """Steps with all classes, each with the images of its domains.

    Every step is tested on the whole test split. `legacy` tests every step on the images that the research code tests
    its last step on, which are those of its tables.
    """
    legacy = task.data.variant == "legacy"
    pool = data.splits["train"] + data.splits["val"] if legacy else data.splits[task.data.train]
    unknown = [sample for sample in pool if not sample.domain]
    if unknown:
        raise ConfigError(
            f"{len(unknown)} images of {data.root} have no domain, first {unknown[0].image}",
            'A site records domains in dataset.json, {"image_domains": {"train/NAME": "night"}}; Cityscapes has its '
            "cities; VOC and ADE20K have none.",
        )
    groups = resolve_domains(task.protocol, domains_of(task.data.kind, pool))
    everywhere = by_domain(pool, (domain for group in groups for domain in group))
    wanted = [[domain for group in groups for domain in group]] if joint else groups
    planned = steps_of_domains(wanted, len(data.classes))

    def images_of(domains: Sequence[str]) -> list[Sample]:
        found = by_domain(pool, domains)
        return legacy_cut(found)[0] if legacy else found

    drawn = wanted if legacy else groups  # the joint cut of `legacy` has images that no step has
    names = [[sample.name for sample in images_of(group)] for group in drawn]
    held = choose_held_out(names, task.seed, task.training.held_out)
    steps = [_step_plan(task, data, step, images_of(step.domains), held) for step in planned]
    return Plan(data, tuple(steps), tuple(legacy_cut(everywhere)[1]) if legacy else data.splits[task.data.test])


def _step_plan(
    task: Task, data: SegmentationData, step: ClassStep, chosen: list[Sample], held: frozenset[str]
) -> StepPlan:
    """The plan of a step whose images named in `held` are held out."""
    train, held_out = hold_out(chosen, held)
    plan = StepPlan(step, tuple(data.names[c] for c in step.classes), train, held_out)
    if not plan.train or (task.training.held_out and not plan.validation):
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
                "Use the order with its own dataset.",
            )
        return split_order(order, *parse_split(protocol.split))
    assert protocol.steps is not None
    ids = {name: index for index, name in enumerate(names)}
    flat = [name for group in protocol.steps for name in group]
    for step, name in ((step, name) for step, group in enumerate(protocol.steps) for name in group):
        if name not in ids:
            raise ConfigError(f"protocol.steps, step {step}: the data has no class '{name}'", did_you_mean(name, ids))
        if ids[name] != BACKGROUND and flat.count(name) > 1:
            raise ConfigError(
                f"protocol.steps: the class '{name}' is named twice", "Name every class in one step only."
            )
    groups = [[ids[name] for name in group if ids[name] != BACKGROUND] for group in protocol.steps]
    return [[BACKGROUND, *groups[0]], *groups[1:]]


def resolve_domains(protocol: ProtocolSection, domains: list[str]) -> list[list[str]]:
    """Domain names of each step.

    Args:
        protocol: A protocol with `domains` or `domain_steps`.
        domains: The domains of the data, in the order in which X-Y counts them by default.
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
        missing = ", ".join(sorted(set(domains).difference(order))) or "none, but one is named twice"
        raise ConfigError(
            f"protocol.domain_order must name every domain once; missing: {missing}",
            "To leave domains out, list those of each step under protocol.domain_steps.",
        )
    return domain_steps(order, *parse_split(protocol.domains))
