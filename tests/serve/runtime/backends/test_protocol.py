import numpy as np
import pytest

from rcil.core.errors import RunError
from rcil_serve.runtime.backends.protocol import outputs_of

MASK = np.zeros((2, 4, 5), np.uint8)


def test_logits_stand_in_for_a_mask():
    logits = np.zeros((2, 3, 4, 5), np.float32)
    logits[:, 2] = 1
    assert (outputs_of({"logits": logits}, "a.onnx").mask == 2).all()


@pytest.mark.parametrize(
    "values",
    [
        {"mask": MASK[0]},
        {"mask": MASK, "confidence": np.ones((), np.float32)},
        {"mask": MASK, "confidence": np.zeros((2, 4, 6), np.float32)},
        {"logits": np.zeros((2, 4, 5), np.float32)},
        {"scores": MASK},
    ],
)
def test_outputs_of_other_shapes_are_refused(values):
    with pytest.raises(RunError, match=r"a\.onnx outputs"):
        outputs_of(values, "a.onnx")
