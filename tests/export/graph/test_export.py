import numpy as np
import onnx
import pytest
import torch
from exports import described, photographs, run_onnx, torch_logits
from networks import BACKBONES, NORMS

from rcil.core.errors import ConfigError
from rcil.inference import as_input
from rcil.nn import fold
from rcil_export.graph.export import to_onnx
from rcil_export.graph.interface import OPSETS, Interface
from rcil_export.graph.shapes import InputShape, parse_shape

ALL = ("mask", "confidence", "logits")


def assert_same(outputs, expected):
    """Logits to 1e-5 of their range, the same mask up to ties, confidence to 1e-5."""
    span = np.ptp(expected)
    assert np.abs(outputs["logits"] - expected).max() <= 1e-5 * span
    top = np.sort(expected, 1)
    clear = top[:, -1] - top[:, -2] > 1e-5 * span
    assert (outputs["mask"] == expected.argmax(1))[clear].all()
    chance = torch.from_numpy(expected).softmax(1).amax(1).numpy()
    np.testing.assert_allclose(outputs["confidence"], chance, atol=1e-5 * max(1, span))


@pytest.mark.parametrize(
    ("backbone", "head"),
    [
        *((backbone, "deeplabv3") for backbone in BACKBONES),
        *(
            (backbone, "deeplabv3plus")
            for backbone in ("resnet18", "resnet50", "efficientnet_lite0", "efficientnet_lite2")
        ),
    ],
)
def test_the_graph_computes_what_the_network_does(backbone, head):
    model, metadata = described(backbone, 2, head=head)
    images = photographs(2, 97, 131)
    document = to_onnx(fold(model)[0], metadata, Interface(shape=InputShape.of(97, 131, 2), outputs=ALL))
    assert_same(run_onnx(document, images), torch_logits(model, metadata, images))


@pytest.mark.parametrize(("runtime", "transposes"), [("any", 1), ("tensorrt", 1), ("cpu", 3)])
def test_every_form_gives_the_same(runtime, transposes):
    model, metadata = described("resnet18", 1)
    images = photographs(1, 65, 49)
    interface = Interface(shape=InputShape.of(65, 49), outputs=ALL, runtime=runtime)
    document = to_onnx(fold(model)[0], metadata, interface)
    assert sum(node.op_type == "Transpose" for node in document.graph.node) == transposes
    assert_same(run_onnx(document, images), torch_logits(model, metadata, images))


@pytest.mark.parametrize("norm", NORMS)
@pytest.mark.parametrize(
    ("backbone", "rc"), [("resnet18", {}), ("efficientnet_lite0", {}), ("resnet18", {"norm_after": True})], ids=str
)
def test_both_branches_can_be_exported_for_comparison(backbone, rc, norm):
    model, metadata = described(backbone, 1, norm=norm, rc=rc)
    images = photographs(1, 65, 49)
    interface = Interface(shape=InputShape.of(65, 49), outputs=ALL, folded=False)
    document = to_onnx(model, metadata, interface)
    assert sum(node.op_type == "BatchNormalization" for node in document.graph.node) > 10
    assert_same(run_onnx(document, images), torch_logits(model, metadata, images))


def test_a_float_graph_takes_normalised_planes():
    model, metadata = described()
    images = photographs(1, 64, 80)
    document = to_onnx(
        model, metadata, Interface(shape=InputShape.of(64, 80), input="float", outputs=ALL, folded=False)
    )
    planes = torch.stack([as_input(metadata, image) for image in images]).numpy()
    assert_same(run_onnx(document, planes), torch_logits(model, metadata, images))


@pytest.mark.parametrize("runtime", ["any", "cpu"])
@pytest.mark.parametrize(("kind", "head"), [("uint8", "deeplabv3"), ("float", "deeplabv3"), ("uint8", "deeplabv3plus")])
def test_one_dynamic_graph_takes_every_size_of_its_range(kind, head, runtime):
    model, metadata = described("efficientnet_lite0", head=head)
    folded = fold(model)[0]
    shape = parse_shape(None, "33x33:64x64:129x160", "1:2:3")
    document = to_onnx(folded, metadata, Interface(shape=shape, input=kind, outputs=ALL, runtime=runtime))
    for count, height, width in ((1, 33, 33), (2, 64, 64), (3, 129, 160), (1, 100, 37)):
        images = photographs(count, height, width)
        feed = images if kind == "uint8" else torch.stack([as_input(metadata, image) for image in images]).numpy()
        assert_same(run_onnx(document, feed), torch_logits(folded, metadata, images))


def test_the_window_of_official_checkpoints_slides_in_the_graph_too():
    model, metadata = described("resnet18", pool_window=3)
    images = photographs(1, 97, 65)
    document = to_onnx(fold(model)[0], metadata, Interface(shape=InputShape.of(97, 65), outputs=ALL))
    assert [node.op_type for node in document.graph.node].count("AveragePool") == 1
    assert_same(run_onnx(document, images), torch_logits(model, metadata, images))
    wide = to_onnx(fold(model)[0], metadata, Interface(shape=parse_shape(None, "97x65:97x97:129x160"), outputs=ALL))
    images = photographs(1, 129, 101)
    assert_same(run_onnx(wide, images), torch_logits(model, metadata, images))


def test_sizes_on_both_sides_of_the_window_are_refused():
    model, metadata = described("resnet18", pool_window=3)
    with pytest.raises(ConfigError, match="windows of 3 cells"):
        to_onnx(fold(model)[0], metadata, Interface(shape=parse_shape(None, "32x32:64x64:128x128")))


def test_borders_are_exact():
    """Zeros around the image stand for the mean colour; shifting the mean into the bias would change the border."""
    model, metadata = described("resnet18", 0)
    grey = np.full((1, 32, 32, 3), 255, np.uint8)
    document = to_onnx(fold(model)[0], metadata, Interface(shape=InputShape.of(32, 32), outputs=ALL))
    assert_same(run_onnx(document, grey), torch_logits(model, metadata, grey))


@pytest.mark.parametrize("opset", range(OPSETS[0], OPSETS[1] + 1))
def test_the_file_has_the_opset_that_was_asked_for(opset):
    model, metadata = described()
    document = to_onnx(fold(model)[0], metadata, Interface(shape=InputShape.of(32, 32), outputs=ALL, opset=opset))
    assert [(o.domain, o.version) for o in document.opset_import] == [("", opset)]
    images = photographs(1, 32, 32)
    assert_same(run_onnx(document, images), torch_logits(model, metadata, images))


def test_the_same_request_gives_the_same_bytes():
    model, metadata = described("resnet50")
    interface = Interface(shape=InputShape.of(64, 64))
    first, second = (to_onnx(fold(model)[0], metadata, interface).SerializeToString(deterministic=True) for _ in "ab")
    assert first == second


def test_more_than_256_classes_need_a_wider_mask():
    from networks import small_arch

    from rcil.model.metadata import Metadata, class_table
    from rcil.nn import build

    names = [[f"c{i}" for i in range(300)]]
    model = build(small_arch(), names).eval()
    metadata = Metadata(architecture=model.arch, classes=class_table(names))
    images = photographs(1, 32, 32)
    document = to_onnx(fold(model)[0], metadata, Interface(shape=InputShape.of(32, 32)))
    mask = run_onnx(document, images)["mask"]
    assert mask.dtype == np.int32
    expected = torch_logits(model, metadata, images).argmax(1)
    assert (mask == expected).mean() > 0.999
    assert expected.max() > 255


def test_only_the_network_is_in_the_graph():
    model, metadata = described("efficientnet_lite0", 2)
    document = to_onnx(fold(model)[0], metadata, Interface(shape=InputShape.of(64, 64)))
    ops = {node.op_type for node in document.graph.node}
    ends = {"Cast", "Transpose", "Sub", "Resize", "ArgMax"}
    assert ops == ends | {"Conv", "Clip", "LeakyRelu", "Add", "Concat", "GlobalAveragePool"}
    convs = sum(node.op_type == "Conv" for node in document.graph.node)
    assert convs == sum(isinstance(m, torch.nn.Conv2d) for m in fold(model)[0].modules())
    inferred = onnx.shape_inference.infer_shapes(document, strict_mode=True)
    assert {v.name for v in inferred.graph.value_info} >= {n.output[0] for n in document.graph.node} - {"mask"}


def test_training_mode_is_refused():
    model, metadata = described()
    with pytest.raises(ValueError, match=r"eval\(\)"):
        to_onnx(model.train(), metadata, Interface(shape=InputShape.of(32, 32), folded=False))


def test_sides_of_three_are_not_taken_for_channels():
    model, metadata = described("resnet18", 0)
    interface = Interface(shape=InputShape.of(33, 64, batch=3), outputs=ALL)
    document = to_onnx(fold(model)[0], metadata, interface)
    shapes = [[d.dim_value for d in o.type.tensor_type.shape.dim] for o in document.graph.output]
    assert shapes == [[3, 33, 64], [3, 33, 64], [3, 3, 33, 64]]
