import numpy as np
import pytest
import torch
from networks import BACKBONES, NORMS, at_step, randomise, small_arch
from torch import nn

from rcil.checkpoint.file import ROWS, load_for_inference, save
from rcil.classify.network import HeadSpec, build_classifier, fold_classifier, next_step
from rcil.core.errors import CheckpointError
from rcil.model.architecture import RC
from rcil.model.metadata import Metadata, class_table
from rcil.nn import begin_step, build, fold
from rcil_export.certificate.weights import Tensors, deployed_weights, open_tensors


def tensors_of(model):
    """As a checkpoint of `model` has them, with every bit that float64 gives."""
    stored = model.state_dict() if hasattr(model, "head_spec") else model.tensors()
    arrays = {name: value.numpy() for name, value in stored.items()}
    return Tensors(arrays, arrays.__getitem__)


def assert_as_folded(model, folded):
    wanted = folded.state_dict()
    found = dict(deployed_weights(tensors_of(model), model.arch, wanted))
    assert list(found) == list(wanted)
    for name, value in wanted.items():
        scale = max(float(value.abs().max()), 1e-30)
        np.testing.assert_allclose(found[name], value.numpy(), rtol=1e-12, atol=1e-13 * scale, err_msg=name)


def doubled(arch, step):
    """A network in float64 whose steps were merged in float64 too."""
    torch.manual_seed(0)
    model = build(arch, [["background", "a", "b"]]).double()
    randomise(model)
    for index in range(1, step + 1):
        model = begin_step(model, [f"new{index}"], rows="balanced")
        for module in model.modules():
            if hasattr(module, "frozen"):
                randomise(module.new, index)
                if hasattr(module.mix, "logit"):
                    nn.init.normal_(module.mix.logit)
    return model.eval()


@pytest.mark.parametrize(
    ("backbone", "head"),
    [
        *((backbone, "deeplabv3") for backbone in BACKBONES),
        ("resnet18", "deeplabv3plus"),
        ("efficientnet_lite2", "deeplabv3plus"),
    ],
)
def test_all_networks_after_a_step(backbone, head):
    model = doubled(small_arch(backbone, norm="abs", head=head), 1)
    assert_as_folded(model, fold(model)[0])


@pytest.mark.parametrize("norm", NORMS[:2])
@pytest.mark.parametrize("step", [0, 2])
@pytest.mark.parametrize(
    "rc",
    [
        RC(),
        RC(mix="fixed", old_weight=0.3),
        RC(mix="learnable"),
        RC(mix="learnable", norm_after=True),
        RC(stages=("stage1", "stage4")),
        RC(norm_after=True, stages=("head",)),
        None,
    ],
    ids=["drop", "fixed", "learnable", "norm after", "stages", "norm after in the head", "no"],
)
def test_norms_steps_and_mixes(norm, step, rc):
    model = doubled(small_arch("resnet18", norm=norm, rc=rc, blocks=(1, 1, 1, 1)), step)
    assert_as_folded(model, fold(model)[0])


@pytest.mark.parametrize(
    "how",
    [{"preserve": True}, {"merge": False}, {"absorb": True}, {"absorb": True, "merge": False}],
    ids=["preserved", "not merged", "without norm", "not merged, without norm"],
)
@pytest.mark.parametrize("backbone", ["resnet18", "efficientnet_lite0"])
def test_branches_in_other_forms(how, backbone):
    model = doubled(small_arch(backbone, norm="abs"), 0)
    model = begin_step(model, ["c"], **how).eval()
    assert_as_folded(model, fold(model)[0])


@pytest.mark.parametrize("changes", [{"stem_activation": False}, {"output_stride": 8}], ids=str)
def test_other_shapes(changes):
    model = doubled(small_arch("resnet50", blocks=(1, 1, 1, 1), **changes), 1)
    assert_as_folded(model, fold(model)[0])


def test_a_folded_checkpoint_is_taken_as_it_is():
    folded = fold(doubled(small_arch("efficientnet_lite0"), 1))[0]
    assert_as_folded(folded, folded)


@pytest.mark.parametrize("head", [HeadSpec("linear"), HeadSpec("cosine", 3)], ids=lambda head: head.kind)
def test_classifiers_of_whole_images(head):
    torch.manual_seed(0)
    model = build_classifier(small_arch("resnet18", blocks=(1, 1, 1, 1)), head, [["a", "b"], ["c"]]).double()
    randomise(model)
    model = next_step(model).eval()
    folded = fold_classifier(model)[0]
    assert_as_folded(model, folded)
    assert_as_folded(folded, folded)


@pytest.mark.parametrize("norm", [pytest.param("inplace", marks=NORMS[2].marks), "abs"])
def test_a_file_gives_what_float32_can_hold(tmp_path, norm):
    model = at_step(small_arch("resnet18", norm=norm, blocks=(1, 1, 1, 1)), 1)
    steps = [list(names) for names in model.classifier.steps]
    save(tmp_path / "m.safetensors", model, Metadata(architecture=model.arch, classes=class_table(steps), step=1))
    wanted = fold(load_for_inference(tmp_path / "m.safetensors")[0])[0].state_dict()
    with open_tensors(tmp_path / "m.safetensors") as tensors:
        for name, value in deployed_weights(tensors, model.arch, wanted):
            np.testing.assert_array_max_ulp(value.astype(np.float32), wanted[name].numpy(), maxulp=1)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda names: names - {"head.pool.norm.weight"}, "has no tensor head.pool.norm.weight"),
        (lambda names: names | {"head.pool.conv.gain"}, "does not use the tensor head.pool.conv.gain"),
        (lambda names: names - {ROWS[0]}, "has no classifier"),
        (lambda names: {n for n in names if not n.startswith("backbone.stem.")}, "has no conv for backbone.stem"),
    ],
)
def test_a_checkpoint_that_is_not_that_of_its_network_is_refused(change, message):
    model = doubled(small_arch("resnet18", blocks=(1, 1, 1, 1), rc=None), 0)
    whole = tensors_of(model)
    with pytest.raises(CheckpointError, match=message):
        list(deployed_weights(Tensors(change(whole.names), whole.__getitem__), model.arch, fold(model)[0].state_dict()))


def test_a_file_that_is_none_is_refused(tmp_path):
    (tmp_path / "m.safetensors").write_bytes(b"\0" * 7)
    with pytest.raises(CheckpointError, match="cannot read the tensors"), open_tensors(tmp_path / "m.safetensors"):
        pass
