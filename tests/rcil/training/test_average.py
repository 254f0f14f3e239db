"""The moving average of the weights, by hand."""

import pytest
import torch
from networks import small_arch

from rcil.nn import build
from rcil.training.average import WeightAverage


def constant(value):
    model = build(small_arch(), [["background", "ball"]])
    with torch.no_grad():
        for tensor in model.state_dict().values():
            tensor.fill_(value)
    return model


def test_the_average_follows_with_a_growing_memory():
    average = WeightAverage(constant(0), 0.5)
    expected = 0.0
    for update, value in enumerate((4.0, 8.0, -2.0, 6.0, 1.0, 3.0, 5.0, 7.0, 9.0), 1):
        average.update(constant(value))
        decay = min(0.5, (1 + update) / (10 + update))
        expected = decay * expected + (1 - decay) * value
    state = average.model.state_dict()
    assert state["backbone.stem.conv.weight"].flatten()[0].item() == pytest.approx(expected)
    assert state["backbone.stem.norm.running_mean"][0].item() == pytest.approx(expected), "statistics are averaged too"
    assert state["backbone.stem.norm.num_batches_tracked"] == 9, "counters are copied"


def test_a_state_comes_back():
    average = WeightAverage(constant(0), 0.9)
    average.update(constant(2))
    other = WeightAverage(constant(5), 0.9)
    other.load_state_dict(average.state_dict())
    assert other.updates == 1
    for mine, theirs in zip(average.model.state_dict().values(), other.model.state_dict().values(), strict=True):
        assert torch.equal(mine, theirs)
