import check_models as models
import pytest
from onnx import TensorProto, helper

from rcil_export.checks.structure import interface_item
from rcil_export.graph.interface import Interface
from rcil_export.graph.shapes import InputShape, parse_shape

INTERFACE = Interface(shape=InputShape.of(48, 64), outputs=("mask", "confidence"))
OPEN = INTERFACE.model_copy(update={"shape": parse_shape(None, "48x48:48x64:64x64", "1:2:3")})
CLASSES = len(models.model().names)


def ends(interface=INTERFACE, *, mask=TensorProto.UINT8, name="mask", more=()):
    """A graph of inputs and outputs alone."""
    sides = [1, 48, 64] if interface is INTERFACE else ["batch", "height", "width"]
    image = helper.make_tensor_value_info("image", TensorProto.UINT8, [*sides, 3])
    outputs = [
        helper.make_tensor_value_info(name, mask, sides),
        helper.make_tensor_value_info("confidence", TensorProto.FLOAT, sides),
        *more,
    ]
    return helper.make_model(helper.make_graph([], "ends", [image], outputs))


@pytest.mark.parametrize("interface", [INTERFACE, OPEN])
def test_a_real_export_and_bare_ends_pass(interface):
    assert interface_item(models.document(models.folded(), interface), interface, CLASSES).passed
    assert interface_item(ends(interface), interface, CLASSES).passed


def test_a_renamed_output_is_named():
    item = interface_item(ends(name="masks"), INTERFACE, CLASSES)
    assert item.passed is False
    assert "the output mask is missing; the output masks is not declared" in item.measured


def test_an_extra_output_is_named():
    extra = helper.make_tensor_value_info("secret", TensorProto.FLOAT, [1])
    assert "the output secret is not declared" in interface_item(ends(more=[extra]), INTERFACE, CLASSES).measured


def test_another_element_type_is_named():
    item = interface_item(ends(mask=TensorProto.INT64), INTERFACE, CLASSES)
    assert item.passed is False and item.measured == "the output mask is int64, not uint8"


def test_many_classes_need_more_than_a_byte():
    assert "mask is uint8, not int32" in interface_item(ends(), INTERFACE, 257).measured
    assert interface_item(ends(mask=TensorProto.INT32), INTERFACE, 257).passed


def test_axes_and_their_names_count():
    document = ends(OPEN)
    document.graph.output[0].type.tensor_type.shape.dim[1].dim_param = "rows"
    text = "the output mask has the axes ['batch', 'rows', 'width'], not ['batch', 'height', 'width']"
    assert interface_item(document, OPEN, CLASSES).measured == text
    assert interface_item(ends(), OPEN, CLASSES).passed is False


def test_a_second_input_is_named():
    document = ends()
    document.graph.input.append(helper.make_tensor_value_info("key", TensorProto.FLOAT, [1]))
    assert interface_item(document, INTERFACE, CLASSES).measured == "the input key is not declared"


def test_the_number_of_classes_is_the_checkpoints():
    interface = INTERFACE.model_copy(update={"outputs": ("logits",)})
    logits = helper.make_tensor_value_info("logits", TensorProto.FLOAT, [1, CLASSES + 1, 48, 64])
    document = ends()
    del document.graph.output[:]
    document.graph.output.append(logits)
    assert (
        f"[1, {CLASSES + 1}, 48, 64], not [1, {CLASSES}, 48, 64]"
        in interface_item(document, interface, CLASSES).measured
    )


def test_outputs_stand_in_one_order():
    document = ends()
    outputs = list(document.graph.output)[::-1]
    del document.graph.output[:]
    document.graph.output.extend(outputs)
    item = interface_item(document, INTERFACE, CLASSES)
    assert item.measured == "the outputs are in the order confidence, mask, not mask, confidence"
