"""Names and shapes of real official checkpoints: every key has its place; depth, classes and step are inferred."""

import pytest
import torch
from official_recipe import golden_json

from rcil.checkpoint.importers.backbones import imagenet_abn
from rcil.checkpoint.importers.official import architecture_of, shape_of, translate
from rcil.nn import build

DEPTHS = ["resnet50", "resnet101"]


def tensors(entries, *, tracked=True):
    dtypes = {"float32": torch.float32, "int64": torch.int64}
    return {
        key.removeprefix("module."): torch.empty(shape, dtype=dtypes[dtype], device="meta")
        for key, shape, dtype in entries
        if tracked or not key.endswith("num_batches_tracked")
    }


def shapes(state):
    return {key: tuple(value.shape) for key, value in state.items() if not key.endswith("num_batches_tracked")}


@pytest.mark.parametrize("tracked", [True, False])
@pytest.mark.parametrize("step", [0, 1, 2])
@pytest.mark.parametrize("depth", DEPTHS)
def test_segmenter(depth, step, tracked, tmp_path):
    keys = golden_json(f"official_keys_{depth}")
    entries = keys[f"step{min(step, 1)}"] + (keys["added_at_step2"] if step == 2 else [])
    state = tensors(entries, tracked=tracked)
    shape = shape_of(state, tmp_path)
    assert shape.classes == (16, 1, 1)[: step + 1]
    assert shape.rc == ("step0" if step == 0 else "later")
    arch = architecture_of(shape, 16, 32, "abs")
    assert (arch.backbone, arch.blocks, arch.stem_activation) == (depth, None, False)
    assert arch.rc.frozen == (step > 0)
    with torch.device("meta"):  # before the frozen norms are absorbed, both branches are conv + norm
        model = build(
            arch.replace(rc={"drop": 0.33}), [[f"{s}{i}" for i in range(n)] for s, n in enumerate(shape.classes)]
        )
    expected = shapes(model.state_dict())
    biases = {key: shape for key, shape in shapes(translate(state)).items() if key not in expected}
    assert all(key.endswith(".old.conv.bias") for key in biases)
    assert len(biases) == (0 if step == 0 else len(keys["added_at_step1"]) - 2)
    assert {key: shape for key, shape in shapes(translate(state)).items() if key in expected} == expected


@pytest.mark.parametrize("depth", DEPTHS)
def test_single_branch_codes_have_the_same_keys_without_new(depth, tmp_path):
    entries = golden_json(f"official_keys_{depth}")["step0"]
    state = {key: value for key, value in tensors(entries).items() if "_new" not in key}
    shape = shape_of(state, tmp_path)
    assert shape.rc == "none"
    arch = architecture_of(shape, 16, 32, "abs")
    assert arch.rc is None
    assert arch.stem_activation
    with torch.device("meta"):
        model = build(arch, [[str(i) for i in range(16)]])
    assert shapes(translate(state)) == shapes(model.state_dict())


@pytest.mark.parametrize("depth", DEPTHS)
def test_imagenet_backbone(depth, tmp_path):
    source = tmp_path / "imagenet.pth.tar"
    source.write_bytes(b"")
    entries = golden_json(f"official_keys_{depth}")["imagenet_pretrained_keys"]
    weights, metadata = imagenet_abn(tensors(entries), source)
    assert metadata.architecture.backbone == depth
    with torch.device("meta"):
        model = build(metadata.architecture, [["background"]])
    assert shapes(weights) == shapes(model.backbone.state_dict())
