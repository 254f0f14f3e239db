"""Outputs of the official code, evaluation mode; tolerances from the golden README: 2e-6 of the maximum in float64,
1e-4 absolute for float32 logits, 1e-6 (float64) of the L2 norm for probes."""

from pathlib import Path

import numpy as np
import pytest
import torch
from official_models import TINY, official_start, run
from official_recipe import GOLDEN, generator, image, parameter, probe, state_dict

from rcil.checkpoint.importers.official import segmenter_of
from rcil.nn import fold

MERGED_BELOW = ("convs.conv2.", "convs.bn2.", "head.map_convs.", "head.map_bn.")


@pytest.fixture(scope="module")
def arrays():
    return np.load(GOLDEN / "official_tiny.npz")


@pytest.fixture(scope="module")
def source(tmp_path_factory):
    path = tmp_path_factory.mktemp("official") / "tiny.pth"
    path.write_bytes(b"")
    return path


@pytest.fixture(scope="module")
def step0_state():
    return state_dict(TINY["keys_step0"])


@pytest.fixture(scope="module")
def step0(step0_state, source):
    return segmenter_of(step0_state, source)[0].double()


@pytest.fixture(scope="module")
def step1_start(step0):
    return official_start(step0, "cls.1.bias", 2)


@pytest.fixture(scope="module")
def step1_state(step1_start):
    """First branch = merged values, all other keys by the recipe with salt `step1/`."""
    state = {}
    merged = official_merged_tensors(step1_start)
    for key, shape in TINY["keys_step1"]:
        if any(part in key for part in MERGED_BELOW):
            state[key] = merged[key] if key in merged else identity_norm(key, shape)
        else:
            state[key] = parameter(key, tuple(shape), "step1/")
    return state


@pytest.fixture(scope="module")
def step1_ckpt(step1_state, source):
    """The same, read by the importer."""
    return segmenter_of(step1_state, source)[0].double()


@pytest.fixture(scope="module")
def step2_start(step1_ckpt):
    return official_start(step1_ckpt, "cls.2.bias", 1)


def identity_norm(key, shape):
    ones = key.endswith((".weight", ".running_var"))
    return torch.full(tuple(shape), 1 if ones else 0, dtype=torch.long if not shape else torch.float32)


def official_merged_tensors(model):
    """Merged kernels and biases under their official names."""
    result = {}
    for stage, blocks in enumerate(model.backbone.stages):
        for position, block in enumerate(blocks):
            name = f"body.mod{stage + 2}.block{position + 1}.convs.conv2"
            result |= {f"{name}.weight": block.conv2.old.weight, f"{name}.bias": block.conv2.old.bias}
    for index, path in enumerate(model.head.paths):
        name = f"head.map_convs.{index}"
        result |= {f"{name}.weight": path.old.weight, f"{name}.bias": path.old.bias}
    return {key: value.detach().float() for key, value in result.items()}


def assert_equal(value, expected, tolerance=2e-6):
    expected = torch.from_numpy(expected).double()
    assert value.shape == expected.shape
    assert (value.double() - expected).abs().max() <= tolerance * expected.abs().max()


def assert_maps(maps, scenario, arrays):
    assert_equal(maps.logits_small, arrays[f"{scenario}.logits_small"])
    assert_equal(maps.decoder, arrays[f"{scenario}.decoder"])
    for index, stage in enumerate(maps.stages, 1):
        check = TINY["stage_checks"][scenario][f"stage{index}"]
        norm = check["sum_l1_l2"][2]
        assert abs(probe(f"{scenario}/stage{index}", stage) - check["probe"]) <= 1e-6 * norm
        assert abs(stage.norm().item() - norm) <= 1e-6 * norm


def test_the_recipe_itself():
    recipe = TINY["recipe"]
    for text, crc in recipe["crc_examples"].items():
        assert np.array_equal(generator(text).get_state()[1], np.random.RandomState(crc).get_state()[1])
    shapes = dict(map(tuple, TINY["keys_step0"]))
    for key, values in recipe["value_examples"].items():
        made = image("small") if key == "image/small" else parameter(key, tuple(shapes[key]))
        assert made.flatten()[: len(values)].tolist() == values


def test_step0(step0, arrays):
    maps = run(step0)
    assert_maps(maps, "step0", arrays)
    assert_equal(maps.logits, arrays["step0.logits_up"])


def test_step0_float32(step0, arrays):
    try:
        maps = run(step0.float())
    finally:
        step0.double()
    expected = torch.from_numpy(arrays["step0.logits_up"])
    assert (maps.logits - expected).abs().max() < 1e-4


@pytest.mark.parametrize("window", [3, 4, 5, None])
def test_pooling_windows(step0_state, source, arrays, window):
    model = segmenter_of(step0_state, source, pool_window=window)[0].double()
    assert_equal(run(model).logits_small, arrays[f"step0_pool{window or 'global'}.logits_small"])


def test_output_stride_8(step0_state, source, arrays):
    model = segmenter_of(step0_state, source, output_stride=8)[0].double()
    assert_equal(run(model).logits_small, arrays["step0_os8.logits_small"])


def test_two_class_groups(step0_state, source, arrays):
    extra = {key: parameter(key, shape) for key, shape in (("cls.1.weight", (2, 256, 1, 1)), ("cls.1.bias", (2,)))}
    model = segmenter_of(step0_state | extra, source)[0].double()
    assert_equal(run(model).logits_small, arrays["step0_two_groups.logits_small"])


def test_large_image(step0, arrays):
    maps = run(step0, "large")
    assert_equal(maps.logits_small, arrays["step0_large.logits_small"])
    assert_equal(maps.logits[..., ::16, ::16], arrays["step0_large.logits_up_every16"])


def test_large_image_with_global_pooling(step0_state, source, arrays):
    model = segmenter_of(step0_state, source, pool_window=None)[0].double()
    assert_equal(run(model, "large").logits_small, arrays["step0_large_poolglobal.logits_small"])


def test_step1_start(step1_start, arrays):
    maps = run(step1_start)
    assert_maps(maps, "step1_start", arrays)


def test_step1_checkpoint(step1_ckpt, arrays):
    maps = run(step1_ckpt)
    assert_maps(maps, "step1_ckpt", arrays)
    assert_equal(maps.logits, arrays["step1_ckpt.logits_up"])
    assert_equal(run(step1_ckpt, "large").logits_small, arrays["step1_ckpt_large.logits_small"])


def test_step2_start(step2_start, arrays):
    assert_maps(run(step2_start), "step2_start", arrays)


@pytest.mark.parametrize("step", [1, 2])
def test_merged_kernels(step, step1_start, step2_start):
    made = official_merged_tensors(step1_start if step == 1 else step2_start)
    checks = TINY[f"merged_step{step}"]
    compared = {key: check for key, check in checks.items() if key in made}
    assert len(compared) == 2 * (6 + 4)
    for key, check in compared.items():
        norm = check["sum_l1_l2"][2]
        assert list(made[key].shape) == check["shape"]
        assert abs(probe(key, made[key]) - check["probe"]) <= 1e-6 * norm
        np.testing.assert_allclose(made[key].flatten()[:8], check["first8"], rtol=1e-5, atol=1e-6)


def test_the_folded_networks_give_the_same(step0, step1_ckpt, arrays):
    for scenario, model in (("step0", step0), ("step1_ckpt", step1_ckpt)):
        maps = run(fold(model)[0])
        assert_maps(maps, scenario, arrays)
        assert_equal(maps.logits, arrays[f"{scenario}.logits_up"])


def test_batch_norm_conversion_computes_the_same(step0_state, source, arrays):
    model = segmenter_of(step0_state, source, norm="batch")[0].double()
    assert_equal(run(model).logits_small, arrays["step0.logits_small"])


@pytest.mark.parametrize("mistake", ["gamma without eps", "activation after the stem"])
def test_typical_mistakes_are_seen(step0_state, source, arrays, mistake):
    model = segmenter_of(step0_state, source)[0].double()
    if mistake == "activation after the stem":
        model.backbone.stem.act = torch.nn.LeakyReLU(0.01)
    else:
        for norm in [m for m in model.modules() if hasattr(m, "running_mean")]:
            norm.weight.data = norm.weight.abs() - norm.eps
    assert np.abs(run(model).logits_small.numpy() - arrays["step0.logits_small"]).max() > 1e-2


def test_the_file_name_is_in_the_lineage(step0_state, source):
    _, metadata = segmenter_of(step0_state, source)
    assert metadata.lineage[0].source == f"import of {Path(source).name}"


def test_conversion_to_batch_norm_leaves_merged_branches_alone(step1_ckpt, step1_state, source):
    """eps of the identity norm is absorbed once, and only then are the remaining norms converted."""
    converted = segmenter_of(step1_state, source, norm="batch")[0].double()
    merged = {key: value for key, value in step1_ckpt.state_dict().items() if ".old." in key}
    assert merged
    for key, value in merged.items():
        assert torch.equal(converted.state_dict()[key], value), key
    assert torch.allclose(run(converted).logits, run(step1_ckpt).logits, rtol=1e-5, atol=1e-6)
