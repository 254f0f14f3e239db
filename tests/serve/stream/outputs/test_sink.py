import numpy as np
import pytest

from rcil.core.errors import ConfigError
from rcil_serve.stream.outputs.sink import Smoother


def shown(values, frames):
    smoother = Smoother(frames)
    return [int(smoother.smooth(np.full((2, 2), value, np.uint8))[1, 1]) for value in values]


def test_a_class_is_shown_after_so_many_equal_frames():
    assert shown([0, 1, 0, 1, 1, 1, 2, 1, 2, 2, 2, 2], 3) == [0, 0, 0, 0, 0, 1, 1, 1, 1, 1, 2, 2]
    assert shown([0, 1, 2, 1, 2], 3) == [0, 0, 0, 0, 0]
    assert shown([0, 1, 2], 1) == [0, 1, 2]


def test_pixels_are_smoothed_by_themselves_and_inputs_stay():
    smoother = Smoother(2)
    first, second = np.array([[0, 0]], np.uint8), np.array([[1, 0]], np.uint8)
    smoother.smooth(first)
    assert smoother.smooth(second).tolist() == [[0, 0]]
    assert smoother.smooth(second).tolist() == [[1, 0]]
    assert first.tolist() == [[0, 0]] and second.tolist() == [[1, 0]]
    assert smoother.smooth(np.ones((3, 3), np.uint8)).shape == (3, 3)
    with pytest.raises(ConfigError, match="over 0 frames"):
        Smoother(0)
