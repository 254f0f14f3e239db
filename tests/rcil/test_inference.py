import re

import numpy as np
import pytest
import torch
from networks import at_step, small_arch

from rcil.core.files import sha256_of
from rcil.core.reading import DataError
from rcil.inference import Model, load
from rcil.model.metadata import Metadata, class_table


@pytest.mark.parametrize("scale", [1.0, 0.5])
def test_rows_are_those_of_the_evaluation_and_confidence_their_probability(scale):
    model = at_step(small_arch(), 0)
    metadata = Metadata(architecture=model.arch, classes=class_table([list(model.names)]))
    image = np.random.default_rng(0).integers(0, 255, (65, 97, 3), np.uint8)
    rows, confidence = Model(model, metadata).segment_with_confidence(image, scale=scale)
    assert rows.shape == confidence.shape == (65, 97)
    assert np.array_equal(rows, Model(model, metadata).segment(image, scale=scale))
    assert confidence.min() >= 1 / 3 and confidence.max() <= 1 and confidence.std() > 0


def test_the_probability_of_known_logits():
    class Constant(torch.nn.Module):
        def forward(self, x):
            return torch.tensor([0.0, np.log(3)]).view(1, 2, 1, 1).expand(1, 2, *x.shape[-2:])

    metadata = Metadata(architecture=small_arch(), classes=class_table([["background", "a"]]))
    rows, confidence = Model(Constant(), metadata).segment_with_confidence(np.zeros((4, 5, 3), np.uint8))
    assert (rows == 1).all()
    assert confidence == pytest.approx(np.full((4, 5), 0.75))


@pytest.fixture
def model(tmp_path):
    network = at_step(small_arch(), 0)
    metadata = Metadata(architecture=network.arch, classes=class_table([list(network.names)]))
    Model(network, metadata).save(tmp_path / "model.safetensors")
    return load(str(tmp_path / "model.safetensors"))


def test_a_model_describes_itself(model):
    assert [c.name for c in model.classes] == list(model.network.names)
    assert (model.step, model.lineage, model.device) == (0, (), torch.device("cpu"))
    assert repr(model) == f"Model(resnet18, step 0: {', '.join(model.network.names)})"


def test_a_prediction_has_mask_confidence_shares_and_overlay(model):
    image = np.random.default_rng(0).integers(0, 255, (65, 97, 3), np.uint8)
    result = model.predict(image)
    rows, confidence = model.segment_with_confidence(image)
    assert np.array_equal(result.mask, rows)
    assert result.confidence == pytest.approx(confidence.mean())
    assert result.shares == {
        c.name: float((rows == row).mean()) for row, c in enumerate(model.classes) if (rows == row).any()
    }
    assert result.overlay().shape == image.shape


def test_folding_leaves_the_masks_and_names_the_parent(model, tmp_path):
    image = np.random.default_rng(1).integers(0, 255, (33, 49, 3), np.uint8)
    folded = model.fold()
    folded.save(tmp_path / "folded.safetensors")
    again = load(tmp_path / "folded.safetensors")
    assert again.metadata.architecture.folded and not model.metadata.architecture.folded
    assert (again.predict(image).mask == model.predict(image).mask).mean() > 0.999
    assert again.lineage[-1].source == "fold"
    assert again.lineage[-1].parent_sha256 == sha256_of(tmp_path / "model.safetensors")
    assert again.fold() is again


@pytest.mark.parametrize(
    ("image", "found"),
    [
        (np.zeros((4, 5, 3), np.float32), "float32 [4, 5, 3]"),
        (np.zeros((4, 5), np.uint8), "uint8 [4, 5]"),
        (np.zeros((0, 5, 3), np.uint8), "uint8 [0, 5, 3]"),
        ("photo.jpg", "expected a numpy array, not str"),
    ],
)
def test_what_is_not_an_rgb_image_is_refused(model, image, found):
    with pytest.raises(DataError, match=re.escape(found)):
        model.predict(image)
