import importlib.util

import check_models as models
import numpy as np
import pytest
import torch
from onnx import numpy_helper

from rcil.core.errors import CheckpointError, ConfigError, RcilError, RunError
from rcil.inference import as_input
from rcil_export.checks.artefact import CheckpointArtefact, OnnxArtefact, open_artefact
from rcil_export.graph.interface import Interface
from rcil_export.graph.onnx_file import write_onnx
from rcil_export.graph.shapes import InputShape, parse_shape
from rcil_export.images import generated_images
from rcil_export.runtime.sessions import SessionError


@pytest.fixture(scope="module")
def image():
    return next(iter(generated_images(1, models.SIZE))).pixels


@pytest.fixture(scope="module")
def expected(image):
    network = models.model()
    with torch.no_grad():
        return network(as_input(models.metadata(network), image)[None])[0].numpy()


def test_a_checkpoint_is_taken_as_it_is(tmp_path, image, expected):
    path = models.save_model(tmp_path / "model.safetensors", models.model())
    with open_artefact(path) as artefact:
        found = artefact.predict(image)
        assert artefact.precision == "fp32" and artefact.shape is None
        assert not artefact.metadata.architecture.folded
    assert (found.logits == expected).all()
    assert (found.mask == expected.argmax(0)).all()


@pytest.mark.parametrize("outputs", [("mask",), ("mask", "logits"), ("confidence",)])
@pytest.mark.parametrize("kind", ["uint8", "float"])
def test_logits_are_had_whatever_the_file_gives(tmp_path, image, expected, outputs, kind):
    interface = Interface(shape=InputShape.of(*models.SIZE), input=kind, outputs=outputs)
    path = tmp_path / "model.onnx"
    write_onnx(path, models.document(models.folded(), interface))
    with open_artefact(path) as artefact:
        assert artefact.shape == interface.shape
        assert np.abs(artefact.predict(image).logits - expected).max() <= 1e-5 * np.ptp(expected)
        assert (artefact.predict(image).mask == expected.argmax(0)).mean() > 0.999


def test_a_graph_for_several_images_is_compared_one_by_one(image, expected):
    interface = Interface(shape=parse_shape(None, "32x32:64x80:96x96", "2:2:4"))
    found = models.graph(models.folded(), interface).predict(image)
    assert found.logits.shape == expected.shape
    assert np.abs(found.logits - expected).max() <= 1e-5 * np.ptp(expected)


def test_bgr_models_get_bgr(image):
    network = models.folded()
    metadata = models.metadata(network, colour_order="BGR")
    document = models.document(network)
    graph = OnnxArtefact("graph", document, metadata, models.INTERFACE)
    reference = CheckpointArtefact("checkpoint", network, metadata)
    straight = CheckpointArtefact("rgb", network, models.metadata(network)).predict(image).logits
    assert np.abs(graph.predict(image).logits - reference.predict(image).logits).max() <= 1e-5 * np.ptp(straight)
    assert np.abs(graph.predict(image).logits - straight).max() > 1e-3 * np.ptp(straight)


def test_opening_does_not_change_the_document():
    document = models.document(models.folded())
    before = document.SerializeToString(deterministic=True)
    OnnxArtefact("graph", document, models.metadata(models.folded()), models.INTERFACE)
    assert document.SerializeToString(deterministic=True) == before


def test_the_mask_is_the_one_in_the_file(image):
    document = models.document(models.folded())
    argmax = next(node for node in document.graph.node if node.output[0] == "rows")
    argmax.op_type = "ArgMin"
    artefact = OnnxArtefact("graph", document, models.metadata(models.folded()), models.INTERFACE)
    found = artefact.predict(image)
    assert (found.mask == found.logits.argmin(0)).mean() > 0.999


def test_unknown_and_missing_files_are_explained(tmp_path):
    with pytest.raises(ConfigError, match="is not a model file"):
        open_artefact(tmp_path / "model.pt")
    for name in ("none.safetensors", "none.onnx", "none.engine"):
        with pytest.raises(CheckpointError, match="none"):
            open_artefact(tmp_path / name)
    (tmp_path / "bad.onnx").write_bytes(b"\xff" * 100)
    with pytest.raises(CheckpointError, match=r"bad\.onnx"):
        open_artefact(tmp_path / "bad.onnx")


def test_a_graph_that_does_not_run_is_explained(image):
    document = models.document(models.folded())
    conv = next(node for node in document.graph.node if node.name == "head.paths.1.0")
    del conv.input[1:]
    with pytest.raises(SessionError, match="ONNX Runtime cannot load graph"):
        OnnxArtefact("graph", document, models.metadata(models.folded()), models.INTERFACE)
    artefact = models.graph(models.folded())
    with pytest.raises(RunError, match="ONNX Runtime cannot run graph"):
        artefact.predict(image[:32])


def test_a_mask_of_another_size_is_explained(image):
    document = models.document(models.folded())
    tensor = next(tensor for tensor in document.graph.initializer if tensor.name == "full_size")
    sides = numpy_helper.to_array(tensor)
    tensor.CopyFrom(numpy_helper.from_array(np.where(sides == models.SIZE[0], sides - 1, sides), tensor.name))
    artefact = OnnxArtefact("graph", document, models.metadata(models.folded()), models.INTERFACE)
    with pytest.raises(RunError, match="gives mask of 63x80 for images of 64x80"):
        artefact.predict(image)


@pytest.mark.skipif(importlib.util.find_spec("tensorrt_rtx") is None, reason="tensorrt-rtx is not installed")
@pytest.mark.slow
def test_an_engine_needs_a_gpu(tmp_path, image):
    from rcil_export.engine.build import EngineOptions, build_engine
    from rcil_export.engine.gpu import find_gpus

    source = tmp_path / "model.onnx"
    write_onnx(source, models.document(models.folded()))
    build_engine(source, tmp_path / "model.engine", EngineOptions(precision="fp32", flavour="rtx", gpus=("sm86",)))
    if find_gpus():
        pytest.skip("there is a GPU here")
    with pytest.raises(RcilError, match="needs an NVIDIA GPU"):
        open_artefact(tmp_path / "model.engine")
