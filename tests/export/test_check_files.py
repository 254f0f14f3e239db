"""`check` on files: what fails although masks and logits are right."""

import check_models as models
import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper

from rcil.checkpoint.file import load_for_inference
from rcil_export.check_files import check_files
from rcil_export.convert import deployed_metadata
from rcil_export.graph.export import to_onnx
from rcil_export.graph.interface import INTERFACE_KEY, Interface
from rcil_export.graph.onnx_file import describe, load_document, write_onnx
from rcil_export.graph.shapes import InputShape

INTERFACE = Interface(shape=InputShape.of(48, 64), runtime="cpu")


@pytest.fixture(scope="module")
def delivered(tmp_path_factory):
    folder = tmp_path_factory.mktemp("delivered")
    checkpoint = models.save_model(folder / "step2.safetensors", models.model())
    metadata = deployed_metadata(load_for_inference(checkpoint)[1], checkpoint)
    write_onnx(folder / "model.onnx", to_onnx(models.folded(), metadata, INTERFACE))
    return checkpoint, folder / "model.onnx", metadata


def checked(delivered, tmp_path, change):
    """Failed items of a changed copy, by key."""
    checkpoint, graph, metadata = delivered
    document = load_document(graph)
    change(document, metadata)
    write_onnx(tmp_path / "mutant.onnx", document)
    results, _ = check_files(checkpoint, tmp_path / "mutant.onnx")
    return {item.key: item.measured for result in results for item in result.items if item.passed is False}


def test_an_export_passes(delivered):
    results, outputs = check_files(*delivered[:2])
    assert [item.measured for result in results for item in result.items if item.passed is False] == []
    assert [result.key for result in results] == ["structure", "metadata", "outputs", "bisect"]
    assert outputs is not None


def test_both_files_are_looked_at(delivered):
    results, _ = check_files(delivered[1], delivered[1], bisect=False)
    assert [result.key for result in results] == ["structure", "structure", "metadata", "outputs"]


def renamed_mask(document, metadata):
    for node in document.graph.node:
        if node.output[0] == "mask":
            node.output[0] = "masks"
    document.graph.output[0].name = "masks"


def int64_mask(document, metadata):
    cast = next(node for node in document.graph.node if node.output[0] == "mask")
    cast.attribute[0].i = TensorProto.INT64
    document.graph.output[0].type.tensor_type.elem_type = TensorProto.INT64


def extra_output(document, metadata):
    document.graph.output.append(helper.make_tensor_value_info("logits_full", TensorProto.FLOAT, None))


@pytest.mark.parametrize(
    ("change", "name"), [(renamed_mask, "masks"), (int64_mask, "mask is int64"), (extra_output, "logits_full")]
)
def test_an_interface_that_changed_is_named(delivered, tmp_path, change, name):
    assert name in checked(delivered, tmp_path, change)["interface"]


def test_a_label_that_lies_is_named_and_gives_no_tolerance(delivered, tmp_path):
    def relabelled(document, metadata):
        describe(document, metadata, INTERFACE.model_copy(update={"precision": "int8"}))
        bias = next(t for t in document.graph.initializer if t.name == "classifier.groups.0.bias")
        values = numpy_helper.to_array(bias)
        bias.CopyFrom(numpy_helper.from_array(values + np.linspace(0, 0.05, len(values), dtype=np.float32), bias.name))

    found = checked(delivered, tmp_path, relabelled)
    assert "labelled int8, and the tensors are fp32" in found["precision"]
    assert "error" in found, "judged by the limits of fp32"


def test_a_changed_description_is_named(delivered, tmp_path):
    def swapped(document, metadata):
        classes = list(metadata.classes)
        one, other = classes[1], classes[2]
        classes[1] = one.model_copy(update={"colour": other.colour})
        classes[2] = other.model_copy(update={"colour": one.colour})
        describe(document, metadata.model_copy(update={"classes": tuple(classes)}), INTERFACE)

    found = checked(delivered, tmp_path, swapped)
    assert set(found) == {"class_table"} and "classes[1].colour" in found["class_table"]


def test_a_broken_file_is_a_finding_and_no_traceback(delivered, tmp_path):
    def cut(document, metadata):
        del document.graph.node[10].input[:]

    found = checked(delivered, tmp_path, cut)
    assert "onnx" in found and found["runs"].startswith("not compared: ")


def test_a_file_of_another_checkpoint_is_named(delivered, tmp_path):
    checkpoint, graph, _ = delivered
    other = models.save_model(tmp_path / "other.safetensors", models.model(), parent_sha256="0" * 64)
    results, _ = check_files(other, graph, bisect=False)
    found = {item.key: item.measured for result in results for item in result.items if item.passed is False}
    assert set(found) == {"lineage"} and "lineage[0].parent_sha256" in found["lineage"]
    assert INTERFACE_KEY in {entry.key for entry in load_document(graph).metadata_props}
    assert checkpoint.exists()
