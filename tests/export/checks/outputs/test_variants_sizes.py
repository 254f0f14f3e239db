import check_models as models
import numpy as np
import pytest
from onnx import numpy_helper

from rcil_export.checks.artefact import OnnxArtefact
from rcil_export.checks.limits import DEFAULTS
from rcil_export.checks.outputs import variants as module
from rcil_export.checks.outputs.variants import size_items, sizes_of
from rcil_export.graph.interface import Interface
from rcil_export.graph.shapes import InputShape, parse_shape
from rcil_export.images import generated_images

OPEN = parse_shape(None, "48x48:64x80:96x112")
INTERFACE = Interface(shape=OPEN, runtime="cpu")
IMAGE = generated_images(1, (64, 80)).readers[0]()


def graph(interface=INTERFACE, change=None):
    network = models.folded()
    document = models.document(network, interface)
    if change is not None:
        change(document)
    return OnnxArtefact("graph", document, models.metadata(network), interface)


def items(candidate):
    return size_items(models.checkpoint(models.model()), candidate, IMAGE, DEFAULTS["fp32"])


def test_the_ends_of_the_range_and_odd_sizes_are_tried():
    found = sizes_of(OPEN, 16)
    assert {(48, 48), (64, 80), (96, 112), (48, 112), (96, 48)} <= set(found)
    odd = [(height, width) for height, width in found if height % 2 and width % 2]
    assert len(odd) == 2 and all(height % 16 and width % 16 for height, width in odd)
    assert sizes_of(InputShape.of(64, 80), 16) == [(64, 80)]


@pytest.mark.parametrize("text", ["33x33:33x33:34x35", "48x48:48x48:48x49"])
def test_short_ranges_are_not_left(text):
    shape = parse_shape(None, text)
    assert all(shape.takes(*size) for size in sizes_of(shape, 16))


def test_an_export_passes():
    (item,) = items(graph())
    assert item.passed is True and "96x112" in item.measured


def test_a_fixed_size_is_not_tried():
    assert items(graph(Interface(shape=InputShape.of(64, 80)))) == []


def baked(document):
    """The usual size in place of the image's, so that other images get masks of a wrong size."""
    name = next(node for node in document.graph.node if node.op_type == "Resize").input[3]
    node = next(node for node in document.graph.node if name in node.output)
    document.graph.node.remove(node)
    classes = len(models.model().names)
    document.graph.initializer.append(numpy_helper.from_array(np.array([1, 64, 80, classes], np.int64), name))


def aligned(document):
    """Right only where corners and centres are the same."""
    resize = next(node for node in document.graph.node if node.op_type == "Resize")
    mode = next(a for a in resize.attribute if a.name == "coordinate_transformation_mode")
    mode.s = b"asymmetric"


def louder(document):
    """Logits that are larger by a quarter."""
    rows = next(tensor for tensor in document.graph.initializer if tensor.name == "classifier.groups.0.weight")
    rows.CopyFrom(numpy_helper.from_array(numpy_helper.to_array(rows) * 1.25, rows.name))


@pytest.mark.parametrize(("change", "size"), [(baked, "48x48"), (aligned, "48x48")])
def test_a_wrong_size_is_named(change, size):
    found = items(graph(change=change))
    assert found[0].passed is False and f"at {size}" in found[0].measured


class WrongWhenOdd(OnnxArtefact):
    """Gives the left half of images of odd width another class."""

    def run(self, batch):
        outputs = super().run(batch)
        if batch.shape[2] % 2:
            outputs["mask"][..., : batch.shape[2] // 2] = (outputs["mask"][..., : batch.shape[2] // 2] + 1) % 5
        return outputs


def wrong_when_odd():
    network = models.folded()
    return WrongWhenOdd("graph", models.document(network, INTERFACE), models.metadata(network), INTERFACE)


def test_a_graph_that_is_wrong_at_odd_sizes_only_fails():
    (item,) = items(wrong_when_odd())
    assert item.passed is False
    width = int(item.measured.split()[1].split("x")[1])
    assert width % 2


def test_sizes_that_take_too_much_are_said_to_be_left_out(monkeypatch):
    monkeypatch.setattr(module, "MAX_PIXELS", 64 * 80)
    run, left = items(graph())
    assert run.passed is True and left.passed is None and left.not_checked
    assert left.measured.startswith("not run: ") and "96x112" in left.measured


@pytest.mark.parametrize("precision", ["fp16", "bf16", "int8"])
def test_below_fp32_other_classes_are_a_warning(precision):
    (item,) = size_items(models.checkpoint(models.model()), wrong_when_odd(), IMAGE, DEFAULTS[precision])
    assert item.passed is None and item.warning and item.measured.startswith("WARNING: at ")


def test_below_fp32_wrong_logits_fail():
    found = size_items(models.checkpoint(models.model()), graph(change=louder), IMAGE, DEFAULTS["fp16"])
    assert found[0].passed is False and "at 48x48" in found[0].measured
