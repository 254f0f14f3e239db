import math

import numpy as np
import pytest

from rcil.evaluation.metrics import Confusion, mean_iou


def test_by_hand():
    confusion = Confusion(4)
    truth = np.array([[0, 0, 1, 1], [2, 2, 255, 255]], np.uint8)
    predicted = np.array([[0, 1, 1, 1], [0, 2, 0, 3]], np.uint8)
    confusion.update(truth, predicted)
    # 0: 1 hit, union 3; 1: 2 hits, union 3; 2: 1 hit, union 2; 3: only predicted where ignored.
    assert confusion.iou[:3].tolist() == pytest.approx([1 / 3, 2 / 3, 1 / 2])
    assert math.isnan(confusion.iou[3])
    assert confusion.pixel_accuracy == pytest.approx(4 / 6)
    assert confusion.matrix[2].tolist() == [1, 0, 1, 0]


def test_means_leave_absent_classes_out():
    iou = np.array([0.5, np.nan, 1.0])
    assert mean_iou(iou, [0, 1, 2]) == 0.75
    assert math.isnan(mean_iou(iou, [1]))
    assert math.isnan(mean_iou(iou, []))


def test_nothing_seen():
    assert math.isnan(Confusion(2).pixel_accuracy)
