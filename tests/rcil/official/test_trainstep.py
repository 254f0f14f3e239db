"""One whole optimisation step against the official code, in float64: losses 1e-7, gradients 1e-4 of their L2 norm."""

from collections import defaultdict

import numpy as np
import pytest
import torch
from official_models import TINY, official_start, official_step0
from official_recipe import GOLDEN, generator, golden_json, image, probe, state_dict

from rcil.checkpoint.importers.official import translate
from rcil.losses import pcd_official, unbiased_cross_entropy, unbiased_distillation
from rcil.nn import RCConv, fold

FACTS = golden_json("official_trainstep")
STEP1 = FACTS["step1_train"]


@pytest.fixture(scope="module")
def arrays():
    return np.load(GOLDEN / "official_trainstep.npz")


@pytest.fixture(scope="module")
def teacher(tmp_path_factory):
    path = tmp_path_factory.mktemp("official") / "tiny.pth"
    path.write_bytes(b"")
    return official_step0(path)


@pytest.fixture(scope="module")
def labels(arrays):
    made = generator("labels/train").randint(0, 10, size=(2, 97, 129))
    made = np.array([0, 0, 0, 0, 0, 0, 5, 6, 255, 3])[made]
    assert np.array_equal(made, arrays["labels"])
    return torch.from_numpy(made)


def fix_draws(model):
    """The numbers r of the recipe instead of random ones; the head's 1024 go to its four paths in order."""
    head = torch.from_numpy(generator("r/head").rand(1024).astype(np.float32)).chunk(4)
    draws = dict(zip((f"head.paths.{i}" for i in range(4)), head, strict=True))
    for stage in range(4):
        for position in range(2):
            name = f"body.mod{stage + 2}.block{position + 1}"
            width = 64 * 2**stage
            r = torch.from_numpy(generator(f"r/{name}").rand(width).astype(np.float32))
            draws[f"backbone.stages.{stage}.{position}.conv2"] = r
    for name, module in model.named_modules():
        if isinstance(module, RCConv):
            module.mix.draw = lambda like, r=draws[name]: r


def official_groups():
    """Official key -> our keys (a norm over the ASPP's concatenation is four norms here)."""
    keys = [(key, shape) for key, shape in TINY["keys_step0"] if shape]
    numbered = {key: torch.full(tuple(shape), index) for index, (key, shape) in enumerate(keys)}
    groups = defaultdict(list)
    for ours, value in translate(numbered).items():
        groups[keys[int(value.flatten()[0])][0]].append(ours)
    for row in (0, 1):
        groups[f"cls.{row}.weight"], groups[f"cls.{row}.bias"] = (
            [f"classifier.groups.{row}.weight"],
            [f"classifier.groups.{row}.bias"],
        )
    return groups


GROUPS = official_groups()


def in_official_terms(tensors):
    """Our named tensors under official names, parts concatenated."""
    return {
        key: torch.cat([tensors[k] for k in ours]) for key, ours in GROUPS.items() if all(k in tensors for k in ours)
    }


def assert_statistics(model, checks, unchanged_are_gone=False):
    buffers = in_official_terms(dict(model.named_buffers()))
    compared = 0
    for key, check in checks.items():
        if unchanged_are_gone and not check["changed"]:
            assert key not in buffers, "a frozen branch has no norm any more"
            continue
        norm = check["sum_l1_l2"][2]
        assert abs(probe(key, buffers[key]) - check["probe"]) <= 1e-6 * norm, key
        compared += 1
    return compared


def test_training_forward_of_step0(teacher, arrays):
    fix_draws(teacher)
    state = {key: value.clone() for key, value in teacher.state_dict().items()}
    try:
        maps = teacher.train()(image("train").double(), maps="after")
        for item in ("logits_small", "decoder"):
            expected = arrays[f"step0_train.{item}"]
            assert np.abs(getattr(maps, item).detach().numpy() - expected).max() <= 2e-6 * np.abs(expected).max()
        for index, stage in enumerate(maps.stages, 1):
            check = FACTS["step0_train"]["stage_checks"][f"stage{index}"]
            norm = check["sum_l1_l2"][2]
            assert abs(probe(f"step0_train/stage{index}", stage) - check["probe"]) <= 1e-6 * norm
        assert assert_statistics(teacher, FACTS["step0_train"]["running_stats_after"]) == 66
    finally:
        teacher.load_state_dict(state)
        teacher.eval()


@pytest.fixture(scope="module")
def after_step(teacher, labels):
    """Student, losses and optimiser step of the official recipe; the teacher is folded, as training does it."""
    student = official_start(teacher, "cls.1.bias", 2)
    fix_draws(student)
    student.train()
    before = {name: p.detach().clone() for name, p in student.named_parameters()}
    x = image("train").double()
    with torch.no_grad():
        old = fold(teacher)[0](x, maps="after")
    new = student(x, maps="after")
    spatial, channel = pcd_official(new.distilled(), old.distilled(), classes=7, new_classes=2)
    losses = {
        "ce": unbiased_cross_entropy(new.logits, labels, 5),
        "kd_times_100": 100 * unbiased_distillation(new.logits, old.logits),
        "pcd_spatial": spatial,
        "pcd_channel": channel,
    }
    losses["total"] = sum(losses.values())
    losses["total"].backward()
    optimiser = torch.optim.SGD(
        [p for p in student.parameters() if p.requires_grad], lr=1e-3, momentum=0.9, nesterov=True, weight_decay=1e-4
    )
    optimiser.step()
    return student, {name: value.item() for name, value in losses.items()}, before


def test_losses(after_step):
    _, losses, _ = after_step
    assert losses.keys() == STEP1["loss"].keys()
    for name, value in STEP1["loss"].items():
        assert losses[name] == pytest.approx(value, rel=1e-7), name


def test_gradients(after_step, arrays):
    student, _, _ = after_step
    grads = in_official_terms({name: p.grad for name, p in student.named_parameters() if p.grad is not None})
    expected = {key: check for key, check in STEP1["grad"].items() if key != "body.mod1.bn1.bias"}
    assert expected.keys() <= grads.keys()
    for key, check in expected.items():
        assert abs(grads[key].norm().item() - check["l2"]) <= 1e-4 * check["l2"], key
        assert abs(probe(f"grad/{key}", grads[key]) - check["probe"]) <= 1e-4 * check["l2"], key
    whole = [name for name in arrays.files if name.startswith("step1_train.grad.") and "_every" not in name]
    assert len(whole) > 5
    for name in whole:
        key = name.removeprefix("step1_train.grad.")
        if key in expected:
            got, want = grads[key].numpy(), arrays[name]
            assert np.linalg.norm(got - want) <= 1e-4 * np.linalg.norm(want), key


def test_frozen_parameters_take_no_gradient(after_step):
    student, _, _ = after_step
    frozen = {name for name, p in student.named_parameters() if p.grad is None}
    assert frozen == {n for n, _ in student.named_parameters() if ".old." in n}
    merged = [
        k for k in STEP1["no_grad"] if ".bn2." not in k and ".map_bn." not in k
    ]  # identity norms are absorbed here
    assert len(frozen) == len(merged)


def test_the_optimiser_step(after_step):
    student, _, before = after_step
    moved = in_official_terms({name: p.detach() - before[name] for name, p in student.named_parameters()})
    for key, check in STEP1["delta_after_sgd"].items():
        if key in moved and key != "body.mod1.bn1.bias":
            assert moved[key].norm().item() == pytest.approx(check["l2"], rel=1e-4), key


def test_running_statistics(after_step):
    student, _, _ = after_step
    changed = sum(check["changed"] for check in STEP1["buffers_after"].values())
    assert assert_statistics(student, STEP1["buffers_after"], unchanged_are_gone=True) == changed


def test_float32_losses(teacher, labels):
    student = official_start(teacher, "cls.1.bias", 2).float()
    fix_draws(student)
    x = image("train")
    with torch.no_grad():
        old, new = fold(teacher)[0].float()(x, maps="after"), student.train()(x, maps="after")
        spatial, channel = pcd_official(new.distilled(), old.distilled(), classes=7, new_classes=2)
        ce = unbiased_cross_entropy(new.logits, labels, 5)
    for name, value in (("ce", ce), ("pcd_spatial", spatial), ("pcd_channel", channel)):
        assert value.item() == pytest.approx(STEP1["loss"][name], rel=1e-5), name


def test_keys_of_the_recipe_all_have_a_place():
    assert set(GROUPS) >= {key for key in state_dict(TINY["keys_step0"]) if not key.endswith("tracked")}
