import numpy as np
import pytest
import torch
from networks import at_step, small_arch

from rcil.evaluation.evaluate import segment
from rcil.model.metadata import Metadata, class_table
from rcil.site.confidence import segment_with_confidence


@pytest.mark.parametrize("scale", [1.0, 0.5])
def test_rows_are_those_of_the_evaluation_and_confidence_their_probability(scale):
    model = at_step(small_arch(), 0)
    metadata = Metadata(architecture=model.arch, classes=class_table([list(model.names)]))
    image = np.random.default_rng(0).integers(0, 255, (65, 97, 3), np.uint8)
    rows, confidence = segment_with_confidence(model, metadata, image, scale=scale)
    assert rows.shape == confidence.shape == (65, 97)
    assert np.array_equal(rows, segment(model, metadata, image, scale=scale))
    assert confidence.min() >= 1 / 3 and confidence.max() <= 1 and confidence.std() > 0


def test_the_probability_of_known_logits():
    class Constant(torch.nn.Module):
        def forward(self, x):
            return torch.tensor([0.0, np.log(3)]).view(1, 2, 1, 1).expand(1, 2, *x.shape[-2:])

    metadata = Metadata(architecture=small_arch(), classes=class_table([["background", "a"]]))
    rows, confidence = segment_with_confidence(Constant(), metadata, np.zeros((4, 5, 3), np.uint8))
    assert (rows == 1).all()
    assert confidence == pytest.approx(np.full((4, 5), 0.75))
