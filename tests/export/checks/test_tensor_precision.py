import numpy as np
import pytest
from onnx import helper
from onnx_models import segmenter

from rcil_export.checks import tensor_precision
from rcil_export.checks.tensor_precision import precision_item, precision_of
from rcil_export.graph.onnx_file import load_document


@pytest.mark.parametrize("precision", ["fp32", "fp16", "bf16", "int8"])
def test_the_tensors_decide(tmp_path, precision):
    opset = 22 if precision == "bf16" else 20
    found = precision_of(load_document(segmenter(tmp_path / "m.onnx", precision=precision, opset=opset)))
    assert (found.precision, found.convs) == (precision, {precision: 2})
    assert precision_item(precision, found).passed


def test_kernels_alone_in_8_bits_are_computed_with_as_fp32(tmp_path):
    document = load_document(segmenter(tmp_path / "m.onnx", precision="int8", quantised_input=False))
    assert precision_of(document).precision == "fp32"


def test_both_names_are_in_the_message(tmp_path):
    item = precision_item("int8", precision_of(load_document(segmenter(tmp_path / "m.onnx"))))
    assert item.passed is False
    assert item.measured == "labelled int8, and the tensors are fp32 (convs: 2 in fp32)"


def test_of_a_mix_most_convs_decide_and_declared_ones_do_not_count(tmp_path):
    document = load_document(segmenter(tmp_path / "m.onnx", precision="fp16", classifier="fp32"))
    assert precision_of(document).precision == "fp32", "one of each: the more exact one"
    assert precision_of(document, kept=["classifier_Conv"]).precision == "fp16"
    assert precision_of(document, kept=["stem_Conv"]).precision == "fp32", "it is not in fp32, so it counts"
    helper.set_model_props(document, {"rcil.conversion": '{"kept_fp32": {"classifier_Conv": "argmax agreement"}}'})
    assert precision_of(document).precision == "fp16", "the file declares it"
    helper.set_model_props(document, {"rcil.conversion": "damaged"})
    assert precision_of(document).precision == "fp32"


def test_declaring_nearly_all_convs_does_not_help(tmp_path, monkeypatch):
    document = load_document(segmenter(tmp_path / "m.onnx", precision="fp16", classifier="fp32"))
    monkeypatch.setattr(tensor_precision, "MIN_SHARE", 0.6)
    assert precision_of(document, kept=["classifier_Conv"]).precision == "fp32"


def test_a_graph_without_convs_is_fp32():
    node = helper.make_node("Relu", ["image"], ["mask"], name="relu")
    value = helper.make_tensor_value_info("image", 1, [1])
    other = helper.make_tensor_value_info("mask", 1, [1])
    found = precision_of(helper.make_model(helper.make_graph([node], "g", [value], [other])))
    assert (found.precision, str(found)) == ("fp32", "no convs")
    assert np.sum(list(found.convs.values())) == 0
