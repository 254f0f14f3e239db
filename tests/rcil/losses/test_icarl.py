from __future__ import annotations

import math
from typing import Any

import pytest
import torch

from rcil.core.errors import ConfigError
from rcil.losses import Reduction, binary_cross_entropy, icarl_cross_entropy, lwf_mc, sigmoid_distillation

OPTIONS: dict[str, dict[str, Any]] = {
    "icarl_none_then_mean": {},
    "icarl_mean": {"reduction": "mean"},
    "icarl_mean_bkg": {"keep_background": True},
}


@pytest.mark.parametrize("case", ["16_1", "16_5"])
@pytest.mark.parametrize("name", OPTIONS)
def test_official_icarl(golden: Any, case: str, name: str, dtype: torch.dtype) -> None:
    student, teacher = golden.leaf(f"logit.{case}.student", dtype), golden.tensor(f"logit.{case}.teacher", dtype)
    labels = golden.tensor(f"logit.{case}.labels")
    loss = icarl_cross_entropy(student, labels, teacher, **OPTIONS[name])
    golden.check_value(loss, golden.json["logit_losses"][case][name])
    loss.backward()
    golden.check_array(student.grad, f"logit.{case}.{name}.grad")
    if f"logit.{case}.{name}.map" in golden:
        golden.check_array(icarl_cross_entropy(student, labels, teacher, reduction="none"), f"logit.{case}.{name}.map")


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
    labels = golden.tensor(f"logit.{case}.labels")
    expected = golden.json["logit_losses"][case]
    term = 10 * sigmoid_distillation(student, teacher)
    golden.check_value(term, expected["icarl_combined_importance10"])
    term.backward()
    golden.check_array(student.grad, f"logit.{case}.icarl_combined_importance10.grad")
    total = expected["icarl_combined_importance10"] + expected["bce_ignore_none_then_mean"]
    golden.check_value(lwf_mc(student, labels, teacher), total)


def test_by_hand() -> None:
    logits = torch.tensor([0.0, math.log(3), -math.log(3)]).view(1, 3, 1, 1)  # probabilities 1/2, 3/4, 1/4
    half, likely, unlikely = -math.log(1 / 2), -math.log(3 / 4), -math.log(1 / 4)
    label = torch.tensor([[[2]]])
    assert binary_cross_entropy(logits, label).item() == pytest.approx(half + unlikely + unlikely, rel=1e-6)
    teacher = torch.tensor([30.0, -30.0]).view(1, 2, 1, 1)  # certain of background
    taught = half + unlikely
    assert icarl_cross_entropy(logits, label, teacher).item() == pytest.approx(taught + unlikely, rel=1e-6)
    ignored = icarl_cross_entropy(logits, torch.tensor([[[255]]]), teacher)
    assert ignored.item() == pytest.approx(taught + likely, rel=1e-6)
    assert sigmoid_distillation(logits, teacher).item() == pytest.approx(taught, rel=1e-6)
    total = half + unlikely + unlikely + 3 * taught
    assert lwf_mc(logits, label, teacher, weight=3).item() == pytest.approx(total, rel=1e-6)


def test_background_may_learn_from_the_labels() -> None:
    logits = torch.tensor([math.log(3), 0.0, 0.0]).view(1, 3, 1, 1)
    teacher = torch.tensor([-30.0, -30.0]).view(1, 2, 1, 1)
    label = torch.tensor([[[0]]])
    rest = 2 * math.log(2)
    kept = icarl_cross_entropy(logits, label, teacher, keep_background=True)
    assert kept.item() == pytest.approx(-math.log(3 / 4) + rest, rel=1e-6)
    assert icarl_cross_entropy(logits, label, teacher).item() == pytest.approx(-math.log(1 / 4) + rest, rel=1e-6)


@pytest.mark.parametrize("reduction", ["mean_all", "mean"])
def test_all_ignored_gives_zero_and_a_graph(reduction: Reduction) -> None:
    logits = torch.randn(1, 3, 2, 2, requires_grad=True)
    loss = binary_cross_entropy(logits, torch.full((1, 2, 2), 255), reduction=reduction)
    loss.backward()
    assert loss.item() == 0
    assert not logits.grad.any()


def test_a_teacher_with_more_classes_is_refused() -> None:
    logits, labels = torch.zeros(1, 2, 1, 1), torch.zeros(1, 1, 1, dtype=torch.long)
    for call in (lambda x: icarl_cross_entropy(logits, labels, x), lambda x: sigmoid_distillation(logits, x)):
        with pytest.raises(ConfigError, match="3 old classes"):
            call(torch.zeros(1, 3, 1, 1))
