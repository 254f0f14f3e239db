import json
from pathlib import Path

import numpy as np
import pytest
from layouts import stripes, write_frame
from sites import write_sample

from rcil.core.errors import ConfigError
from rcil.data.datasets.cityscapes import CITIES
from rcil.tasks.load import load_task
from rcil.tasks.plan import make_plan, resolve_domains, resolve_groups
from rcil.tasks.task import ProtocolSection


def test_steps_by_name(task_file):
    plan = make_plan(load_task(task_file))
    assert [step.names for step in plan.steps] == [("background", "ball"), ("cone",)]
    for step in plan.steps:
        names = {s.name for s in step.train} | {s.name for s in step.validation}
        assert len(names) == len(step.train) + len(step.validation) == 10
    assert len(plan.test) == 10


def test_disjoint_leaves_later_classes_out(task_file):
    for index in range(8):
        write_sample(task_file.parent / "site", "train", f"only_ball_{index}", np.pad(np.ones((30, 30)), 10))
    plan = make_plan(load_task(task_file, ["protocol.setting=disjoint"]))
    assert {s.name.rstrip("0123456789") for s in plan.steps[0].train} == {"only_ball_"}


def test_joint_is_one_step(task_file):
    (step,) = make_plan(load_task(task_file), joint=True).steps
    assert step.names == ("background", "ball", "cone")


@pytest.mark.parametrize(
    ("steps", "message"),
    [
        ([["car"], ["forklfit"]], "protocol.steps, step 1: the data has no class 'forklfit'\nDid you mean 'forklift'?"),
        ([["car"], ["forklift", "car"]], "protocol.steps: the class 'car' is named twice"),
    ],
)
def test_wrong_names_are_named(steps, message):
    with pytest.raises(ConfigError) as error:
        resolve_groups(ProtocolSection(steps=steps), ("background", "car", "forklift"))
    assert message in str(error.value)


def test_groups_of_a_split_and_an_order():
    names = tuple(f"c{i}" for i in range(21))
    assert resolve_groups(ProtocolSection(split="15-1", order="voc-b"), names)[1:] == [[17], [3], [6], [18], [10]]
    assert resolve_groups(ProtocolSection(split="19-1"), names)[1] == [20]


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        (["protocol.steps=[[bal], [cone]]"], "Did you mean 'ball'"),
        (["data.test=vall"], "Did you mean 'val'"),
        (["protocol={split: 1-1, order: voc-a}"], "21 classes"),
    ],
)
def test_impossible_tasks(task_file, overrides, message):
    with pytest.raises(ConfigError, match=message):
        make_plan(load_task(task_file, overrides))


@pytest.mark.parametrize(("share", "held"), [(1e-9, 1), (0.2, 2), (0.34, 3), (1 - 1e-9, 9)])
def test_every_step_holds_out_its_share(task_file, share, held):
    for step in make_plan(load_task(task_file, [f"training.held_out={share}"])).steps:
        assert (len(step.train), len(step.validation)) == (10 - held, held)


@pytest.mark.parametrize("seed", range(4))
def test_no_image_is_held_out_in_one_step_and_trained_on_in_another(task_file, seed):
    """Images of one class, of both, and a memory of the first step."""
    for index in range(14):
        mask = np.zeros((32, 32), np.uint8)
        mask[:8] = 1 if index % 2 else 2
        write_sample(task_file.parent / "site", "train", f"single_{index}", mask)
    task = load_task(task_file, [f"seed={seed}", "training.memory=3"])
    first, second = make_plan(task).steps
    for step in (first, second):
        assert (len(step.train), len(step.validation)) == (14, 3)
    trained = {s.name for step in (first, second) for s in step.train}
    held = {s.name for step in (first, second) for s in step.validation}
    assert not trained & held
    assert len(second.memory) == 3 and not {kept.sample.name for kept in second.memory} & held
    (joint,) = make_plan(task, joint=True).steps
    assert {s.name for s in joint.validation} == held


def test_nothing_is_held_out_if_the_task_says_so(task_file):
    for step in make_plan(load_task(task_file, ["training={held_out: 0, keep: last}"])).steps:
        assert (len(step.train), len(step.validation)) == (10, 0)


def test_one_image_is_too_few(task_file):
    mask = np.zeros((64, 96), np.uint8)
    for index in range(1, 10):
        write_sample(task_file.parent / "site", "train", f"train_{index}", mask)
    with pytest.raises(ConfigError, match=r"step 0 \(background, ball\) has 1 images: too few.*\n.*class names"):
        make_plan(load_task(task_file))


def test_a_test_split_that_was_trained_on_is_told(task_file):
    assert make_plan(load_task(task_file)).warnings == ()
    (warning,) = make_plan(load_task(task_file, ["data.test=train"])).warnings
    assert "10 of 10 test images (100.0 %)" in warning


def numbers(samples):
    return {int(sample.name.removeprefix("train_")) for sample in samples}


class TestDomains:
    def test_every_step_has_all_classes_on_its_own_images(self, domain_file):
        plan = make_plan(load_task(domain_file))
        assert [step.teaches for step in plan.steps] == [("day",), ("night",)]
        assert [step.names for step in plan.steps] == [("background", "ball", "cone"), ()]
        for step, images in zip(plan.steps, (range(5, 10), range(5)), strict=True):
            assert step.step.seen == (0, 1, 2)
            assert numbers(step.train) | numbers(step.validation) == set(images)
            assert not numbers(step.train) & numbers(step.validation)
        assert len(plan.test) == 10

    @pytest.mark.parametrize(
        ("protocol", "expected"),
        [
            ("{domains: 1-1, domain_order: [night, day]}", [("night",), ("day",)]),
            ("{domain_steps: [[night], [day]]}", [("night",), ("day",)]),
            ("{domain_steps: [[night, day]]}", [("night", "day")]),
            ("{domains: 2-1}", [("day", "night")]),
            ("{domain_steps: [[night]]}", [("night",)]),
        ],
    )
    def test_orders_and_lists(self, domain_file, protocol, expected):
        plan = make_plan(load_task(domain_file, [f"protocol={protocol}"]))
        assert [step.teaches for step in plan.steps] == expected

    def test_joint_is_one_step(self, domain_file):
        (step,) = make_plan(load_task(domain_file), joint=True).steps
        assert step.teaches == ("day", "night")
        assert step.names == ("background", "ball", "cone")
        assert numbers(step.train) | numbers(step.validation) == set(range(10))

    def test_the_last_step_takes_what_is_left(self):
        assert resolve_domains(ProtocolSection(domains="1-2"), list("abcd")) == [["a"], ["b", "c"], ["d"]]

    @pytest.mark.parametrize(
        ("overrides", "message"),
        [
            (["protocol={domain_steps: [[day], [nihgt]]}"], "Did you mean 'night'"),
            (["protocol={domain_steps: [[day], [day]]}"], "day are in two steps"),
            (["protocol={domain_steps: [[day], []]}"], "no domain"),
            (["protocol={domains: 1-1, domain_order: [day]}"], "missing: night"),
            (["protocol={domains: 1-1, domain_order: [day, night, day]}"], "one is named twice"),
            (["protocol={domains: 1-1, domain_order: [day, dawn]}"], "no domain 'dawn'"),
            (["protocol={domains: 3-1}"], "Known domains: day, night"),
            (["protocol={domains: eleven}"], "X-Y"),
        ],
    )
    def test_impossible_tasks(self, domain_file, overrides, message):
        with pytest.raises(ConfigError, match=message):
            make_plan(load_task(domain_file, overrides))

    def test_one_image_is_too_few(self, domain_file):
        domains = {f"train/train_{index}": "day" if index == 4 else "night" for index in range(10)}
        (domain_file.parent / "site" / "dataset.json").write_text(json.dumps({"image_domains": domains}))
        with pytest.raises(ConfigError, match=r"step 0 \(day\) has 1 images: too few.*\n.*domain names"):
            make_plan(load_task(domain_file))

    def test_images_without_a_domain(self, domain_file):
        write_sample(domain_file.parent / "site", "train", "lost", np.ones((8, 8)))
        with pytest.raises(ConfigError, match=r"1 images .* no domain, first .*lost\.jpg\n.*dataset\.json"):
            make_plan(load_task(domain_file))


@pytest.fixture(scope="module")
def cities(tmp_path_factory):
    """Cityscapes with ten frames a city."""
    root = tmp_path_factory.mktemp("cityscapes")
    for city in CITIES:
        for index in range(10):
            split = "val" if city in CITIES[-3:] else "train"
            write_frame(root, split, f"{city}_{index:06d}_000019", stripes(7, 26, side=4))
    return root


class TestLegacyCityscapes:
    @pytest.fixture
    def task(self, cities):
        return lambda *overrides: load_task(Path("cityscapes-11-5"), [f"data.root={cities}", *overrides])

    def test_all_cities_are_cut_and_the_leak_is_measured(self, task):
        plan = make_plan(task())
        assert [step.teaches for step in plan.steps] == [CITIES[:11], CITIES[11:16], CITIES[16:]]
        images = [{sample.image for sample in (*step.train, *step.validation)} for step in plan.steps]
        assert [len(found) for found in images] == [88, 40, 40]
        assert {sample.domain for sample in plan.test} > {"frankfurt", "aachen"}
        leaked = sum(sample.image in set().union(*images) for sample in plan.test)
        assert len(plan.test) == 42 and 20 < leaked < 42
        assert plan.warnings[0].startswith(f"WARNING: {leaked} of 42 test images ({100 * leaked / 42:.1f} %)")

    def test_clean_and_joint_keep_test_images_apart(self, task):
        clean = make_plan(task("data.variant=clean"))
        assert [step.teaches for step in clean.steps] == [CITIES[:11], CITIES[11:16], CITIES[16:18]]
        assert {sample.domain for sample in clean.test} == set(CITIES[-3:])
        assert clean.warnings == make_plan(task(), joint=True).warnings == ()

    def test_it_needs_a_domain_protocol(self, task):
        with pytest.raises(ConfigError, match="needs a domain protocol"):
            make_plan(task("protocol={split: 10-4}"))


def test_memory_keeps_some_images_of_every_earlier_class(task_file):
    assert [step.memory for step in make_plan(load_task(task_file)).steps] == [(), ()]
    first, second = make_plan(load_task(task_file, ["training.memory=2"])).steps
    assert first.memory == ()
    assert len(second.memory) == 2
    assert {kept.sample for kept in second.memory} <= set(first.train)
    assert {kept.step for kept in second.memory} == {first.step}
