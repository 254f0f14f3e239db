import copy
import json
from itertools import permutations

import check_models as models
import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

from rcil.core.errors import RcilError
from rcil.nn.units.rc import RCConv
from rcil_export.checks.artefact import Artefact, OnnxArtefact
from rcil_export.checks.bisect import bisect
from rcil_export.checks.layer_alignment import unit_paths
from rcil_export.graph.interface import Interface
from rcil_export.graph.shapes import InputShape, parse_shape
from rcil_export.images import generated_images
from rcil_export.precision.half import to_half
from rcil_export.precision.ranges import measure_ranges

LAYER = "backbone.stages.1.0.conv1"


@pytest.fixture(scope="module")
def image():
    return next(iter(generated_images(1, models.SIZE))).pixels


@pytest.fixture(scope="module")
def forms():
    unfolded = models.model()
    both = Interface(shape=parse_shape(None, "32x32:64x80:96x96", "1:2:4"), folded=False, input="float")
    return {
        "unfolded": models.checkpoint(unfolded),
        "folded": models.checkpoint(models.folded()),
        "onnx": models.graph(models.folded()),
        "onnx with branches": models.graph(unfolded, both),
    }


@pytest.mark.parametrize(("first", "second"), [*permutations(["unfolded", "folded", "onnx", "onnx with branches"], 2)])
def test_all_forms_of_one_network_agree_layer_by_layer(forms, image, first, second):
    report = bisect(forms[first], forms[second], image)
    assert report.divergence is None, report.divergence
    compared = [layer.layer for layer in report.layers]
    assert set(unit_paths(models.model().arch)) | {"interpolate", "cat", "max_pool2d"} <= set(compared)
    assert max(layer.own for layer in report.layers) < 5e-6
    assert report.as_result().ok


@pytest.mark.parametrize("backbone", ["resnet50", "efficientnet_lite0"])
def test_other_backbones(backbone, image):
    report = bisect(models.checkpoint(models.model(backbone)), models.graph(models.folded(backbone)), image)
    assert report.divergence is None, report.divergence
    assert set(unit_paths(models.model(backbone).arch)) <= {layer.layer for layer in report.layers}


RC_LAYERS = [name for name, module in models.model().named_modules() if isinstance(module, RCConv)]


@pytest.mark.parametrize("layer", RC_LAYERS[::7])
@pytest.mark.parametrize("as_onnx", [False, True])
def test_a_branch_scaled_by_a_thousandth_is_named(forms, image, layer, as_onnx):
    wrong = models.scaled_branch("resnet18", layer)
    found = bisect(forms["unfolded"], models.graph(wrong) if as_onnx else models.checkpoint(wrong), image).divergence
    assert found is not None and found.layer == layer
    assert 5e-5 < found.error < 5e-3


@pytest.mark.parametrize("keep_padding", [False, True])
@pytest.mark.parametrize("layer", ["head.paths.2", "backbone.stages.3.0.conv1"])
def test_a_dropped_dilation_is_named(forms, image, layer, keep_padding):
    wrong = models.dropped_dilation(layer, keep_padding=keep_padding)
    report = bisect(forms["unfolded"], models.checkpoint(wrong), image)
    assert report.divergence.layer == layer
    assert bool(np.isinf(report.divergence.error)) is keep_padding
    assert not report.as_result().ok
    assert layer in report.as_result().items[0].measured
    json.dumps(report.as_result().as_document(), allow_nan=False)


def test_a_dilation_dropped_in_the_onnx_file_is_named(forms, image):
    document = models.document(models.folded())
    conv = next(node for node in document.graph.node if node.name == "head.paths.1.0")
    for attribute in conv.attribute:
        if attribute.name in ("dilations", "pads"):
            attribute.ints[:] = [1] * len(attribute.ints)
    wrong = OnnxArtefact("wrong", document, models.metadata(models.folded()), models.INTERFACE)
    found = bisect(forms["unfolded"], wrong, image).divergence
    assert found.layer == "head.paths.1"
    assert "dilations=[1, 1]" in found.second and "dilation=(6, 6)" in found.first


def test_a_norm_left_in_is_named(forms, image):
    found = bisect(forms["unfolded"], models.checkpoint(models.norm_left_in(LAYER)), image).divergence
    assert found.layer == LAYER
    assert "BatchNorm2d" in found.second


def test_a_norm_left_in_the_onnx_file_is_named(forms, image):
    document = models.document(models.folded())
    nodes = list(document.graph.node)
    at = next(index for index, node in enumerate(nodes) if node.name == f"{LAYER}.0")
    channels = models.folded().get_submodule(LAYER)[0].out_channels
    values = {"scale": 1.1, "shift": 0.0, "mean": 0.0, "var": 1.0}
    for key, value in values.items():
        document.graph.initializer.append(
            numpy_helper.from_array(np.full(channels, value, np.float32), f"{LAYER}.{key}")
        )
    inputs = [f"{LAYER}.0", *(f"{LAYER}.{key}" for key in values)]
    norm = helper.make_node("BatchNormalization", inputs, [f"{LAYER}.norm"], name=f"{LAYER}.norm")
    nodes[at + 1].input[0] = f"{LAYER}.norm"
    kept = [onnx.NodeProto.FromString(n.SerializeToString()) for n in [*nodes[: at + 1], norm, *nodes[at + 1 :]]]
    del document.graph.node[:]
    document.graph.node.extend(kept)
    wrong = OnnxArtefact("wrong", document, models.metadata(models.folded()), models.INTERFACE)
    found = bisect(forms["folded"], wrong, image).divergence
    assert found.layer == LAYER and "BatchNormalization" in found.second


@pytest.mark.parametrize(
    ("layer", "path"),
    [("head.project", "head.project.left"), ("classifier", "classifier.groups.0"), ("head.pool", "head.pool.0")],
)
def test_places_that_fold_in_their_own_way_are_named(forms, image, layer, path):
    wrong = models.folded()
    wrong.get_submodule(path).bias.data += 0.1
    assert bisect(forms["unfolded"], models.checkpoint(wrong), image).divergence.layer == layer


def test_a_wrong_resize_is_named(forms, image):
    document = models.document(models.folded())
    resize = next(node for node in document.graph.node if node.op_type == "Resize")
    next(a for a in resize.attribute if a.name == "coordinate_transformation_mode").s = b"align_corners"
    wrong = OnnxArtefact("wrong", document, models.metadata(models.folded()), models.INTERFACE)
    assert bisect(forms["folded"], wrong, image).divergence.layer == "interpolate"


def test_only_the_first_of_two_wrong_layers_is_named_and_errors_do_not_travel(forms, image):
    wrong = models.scaled_branch("resnet18", LAYER)
    wrong.get_submodule("head.paths.0.0").bias.data += 0.1
    report = bisect(forms["unfolded"], models.checkpoint(wrong), image)
    assert report.divergence.layer == LAYER
    over = [layer.layer for layer in report.layers if layer.own > report.tolerance]
    assert over == [LAYER, "head.paths.0"]
    after = [layer.accumulated for layer in report.layers if layer.layer == "backbone.stages.1.0.conv2"]
    assert after[0] > report.tolerance


def test_rows_in_another_order_are_matched_by_name(forms, image):
    other = models.folded()
    order = [0, 2, 1, 4, 3]
    weight, bias = other.classifier.rows()
    other.classifier.set_rows(weight[order].clone(), bias[order].clone())
    other.classifier.steps = (tuple(other.names[row] for row in order),)
    artefact = models.checkpoint(models.folded())
    artefact.model = other
    by_name = {c.name: c for c in artefact.metadata.classes}
    classes = tuple(by_name[name].model_copy(update={"step": 0}) for name in other.names)
    artefact.metadata = artefact.metadata.model_copy(update={"classes": classes})
    assert bisect(forms["onnx"], artefact, image).divergence is None
    assert bisect(artefact, forms["onnx"], image).divergence is None


def test_a_step_against_its_parent_compares_common_rows(image):
    parent = models.checkpoint(models.model(step=1))
    report = bisect(parent, models.checkpoint(models.model()), image)
    assert "interpolate" not in {layer.layer for layer in report.layers}
    assert report.divergence is not None


def test_half_precision_is_within_its_own_tolerance(forms, image):
    document = models.document(models.folded())
    feeds = [{"image": image[None]}]
    for kind in ("fp16", "bf16"):
        interface = models.INTERFACE.model_copy(update={"precision": kind})
        if kind == "bf16":
            document = models.document(models.folded(), models.INTERFACE.model_copy(update={"opset": 22}))
        half = to_half(document, kind, measure_ranges(document, feeds))[0]
        report = bisect(forms["folded"], OnnxArtefact(kind, half, models.metadata(models.folded()), interface), image)
        assert report.divergence is None, report.divergence
        assert max(layer.own for layer in report.layers) > 1e-5
        assert {"head.project", "classifier", "interpolate"} <= {layer.layer for layer in report.layers}


def test_different_networks_are_an_error(forms, image):
    other = copy.copy(forms["folded"])
    other.metadata = other.metadata.model_copy(
        update={"architecture": other.metadata.architecture.replace(output_stride=8)}
    )
    with pytest.raises(RcilError, match="output_stride is 16 and 8"):
        bisect(forms["onnx"], other, image)


def test_an_engine_does_not_show_its_layers(forms, image):
    class Closed(Artefact):
        kind = "engine"

        def predict(self, image):
            raise AssertionError

    engine = Closed("model.engine", models.metadata(models.folded()), "fp32", InputShape.of(*models.SIZE))
    with pytest.raises(RcilError, match=r"layers of model\.engine cannot be compared"):
        bisect(forms["folded"], engine, image)


def test_the_worst_image_of_a_batch_counts(image):
    interface = Interface(shape=InputShape.of(*models.SIZE, 2))
    right = models.graph(models.folded(), interface)
    assert bisect(models.checkpoint(models.model()), right, image).divergence is None
    document = models.document(models.folded(), interface)
    conv = next(node for node in document.graph.node if node.name == "head.paths.1.0")
    conv.output[0] = "even"
    rows = numpy_helper.from_array(np.array([1, 0.5], np.float32).reshape(2, 1, 1, 1), "rows_of_batch")
    document.graph.initializer.append(rows)
    at = list(document.graph.node).index(conv)
    document.graph.node.insert(at + 1, helper.make_node("Mul", ["even", "rows_of_batch"], ["head.paths.1.0"]))
    wrong = OnnxArtefact("graph", document, models.metadata(models.folded()), interface)
    assert bisect(models.checkpoint(models.model()), wrong, image).divergence.layer == "head.paths.1"
