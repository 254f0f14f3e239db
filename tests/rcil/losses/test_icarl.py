from __future__ import annotations

import math
from typing import Any

import pytest
import torch

from rcil.core.errors import ConfigError
from rcil.losses import Reduction, binary_cross_entropy, sigmoid_distillation


@pytest.mark.parametrize("case", ["16_1", "16_5"])
@pytest.mark.parametrize(
    ("name", "reduction"), [("bce_ignore_none_then_mean", "mean_all"), ("bce_ignore_mean", "mean")]
)
def test_official_binary_cross_entropy(
    golden: Any, case: str, name: str, reduction: Reduction, dtype: torch.dtype
) -> None:
    student, labels = golden.leaf(f"logit.{case}.student", dtype), golden.tensor(f"logit.{case}.labels")
    loss = binary_cross_entropy(student, labels, reduction=reduction)
    golden.check_value(loss, golden.json["logit_losses"][case][name])
    loss.backward()
    golden.check_array(student.grad, f"logit.{case}.{name}.grad")
    if f"logit.{case}.{name}.map" in golden:
        golden.check_array(binary_cross_entropy(student, labels, reduction="none"), f"logit.{case}.{name}.map")


@pytest.mark.parametrize("case", ["16_1", "16_5"])
def test_official_combination(golden: Any, case: str, dtype: torch.dtype) -> None:
    """The golden value is the teacher's term alone; the labels' term is `bce_ignore_none_then_mean`."""
    student, teacher = golden.leaf(f"logit.{case}.student", dtype), golden.tensor(f"logit.{case}.teacher", dtype)
    expected = golden.json["logit_losses"][case]
    term = 10 * sigmoid_distillation(student, teacher)
    golden.check_value(term, expected["icarl_combined_importance10"])
    term.backward()
    golden.check_array(student.grad, f"logit.{case}.icarl_combined_importance10.grad")


def test_by_hand() -> None:
    logits = torch.tensor([0.0, math.log(3), -math.log(3)]).view(1, 3, 1, 1)  # probabilities 1/2, 3/4, 1/4
    half, unlikely = -math.log(1 / 2), -math.log(1 / 4)
    label = torch.tensor([[[2]]])
    assert binary_cross_entropy(logits, label).item() == pytest.approx(half + unlikely + unlikely, rel=1e-6)
    teacher = torch.tensor([30.0, -30.0]).view(1, 2, 1, 1)  # certain of background
    taught = half + unlikely
    assert sigmoid_distillation(logits, teacher).item() == pytest.approx(taught, rel=1e-6)


@pytest.mark.parametrize("reduction", ["mean_all", "mean"])
def test_all_ignored_gives_zero_and_a_graph(reduction: Reduction) -> None:
    logits = torch.randn(1, 3, 2, 2, requires_grad=True)
    loss = binary_cross_entropy(logits, torch.full((1, 2, 2), 255), reduction=reduction)
    loss.backward()
    assert loss.item() == 0
    assert not logits.grad.any()


def test_a_teacher_with_more_classes_is_refused() -> None:
    with pytest.raises(ConfigError, match="3 old classes"):
        sigmoid_distillation(torch.zeros(1, 2, 1, 1), torch.zeros(1, 3, 1, 1))
